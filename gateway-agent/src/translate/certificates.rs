//! Certificates of listeners: `certificateRefs` to Secrets to what TLS is terminated with.

use std::sync::Arc;

use super::conditions::{Problem, merge};
use super::grant::{self, From};
use super::inputs::Inputs;
use super::parsed::ParsedOnce;
use super::{Config, authority};
use crate::certificate::Certificate;
use crate::snapshot::ObjectName;
use crate::status::names::reason;
use crate::store::objects::{ObjectRef, Secret};

/// The only type of Secret whose keys are agreed on.
const SECRET_TYPE: &str = "kubernetes.io/tls";

/// What Secrets and ConfigMaps hold, parsed once each.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    own: ParsedOnce<Secret, Certificate>,
    /// Those that clients' certificates are verified by.
    pub(super) authorities: authority::Maps,
}

impl Certificates {
    /// Drops those that were not asked for since this was last called.
    pub(super) fn sweep(&mut self) {
        self.own.sweep();
        self.authorities.sweep();
    }

    /// The good certificates of a listener, in order, and what is wrong with the others.
    pub(super) fn resolve(
        &mut self,
        references: &[ObjectRef],
        from: From<'_>,
        inputs: &Inputs<'_>,
        config: &Config,
    ) -> (Arc<[Arc<Certificate>]>, Option<Problem>) {
        let mut good = Vec::new();
        let mut bad = Vec::new();
        for reference in references {
            match self.one(reference, from, inputs, config) {
                Ok(certificate) => good.push(certificate),
                Err(problem) => bad.push(problem),
            }
        }
        if references.is_empty() {
            let message = "tls.certificateRefs is empty: there is no certificate to serve";
            bad.push(Problem::new(reason::INVALID_CERTIFICATE_REF, message));
        }
        (good.into(), merge(bad))
    }

    /// The certificate that one reference leads to. `INVALID_CERTIFICATE_REF` is the reason of all that is wrong
    /// beside the permission.
    pub(super) fn one(
        &mut self,
        reference: &ObjectRef,
        from: From<'_>,
        inputs: &Inputs<'_>,
        config: &Config,
    ) -> Result<Arc<Certificate>, Problem> {
        let invalid = |message: String| Problem::new(reason::INVALID_CERTIFICATE_REF, message);
        let ObjectRef { group, kind, namespace, name } = reference;
        if !(group.is_empty() && &**kind == "Secret") {
            let message = format!("{name} is a {kind} of group {group:?}; only core Secrets are supported");
            return Err(invalid(message));
        }
        let namespace = namespace.as_ref().unwrap_or(from.namespace);
        let name = ObjectName::new(namespace.clone(), name.clone());
        grant::check(inputs.store(), config, from, "Secret", &name)?;
        let Some(secret) = inputs.secret(&name) else {
            return Err(invalid(format!("Secret {name} does not exist")));
        };
        self.own.get(&name, secret, parse).map_err(invalid)
    }
}

fn parse(name: &ObjectName, secret: &Secret) -> Result<Arc<Certificate>, String> {
    if &*secret.kind != SECRET_TYPE {
        return Err(format!("Secret {name} is of type {}, not {SECRET_TYPE}", secret.kind));
    }
    let part = |key: &str| secret.data.get(key).ok_or_else(|| format!("Secret {name} has no {key}"));
    let (chain, key) = (part("tls.crt")?, part("tls.key")?);
    Certificate::parse(chain, key).map(Arc::new).map_err(|error| format!("Secret {name}: {error}"))
}
