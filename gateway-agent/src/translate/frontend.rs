//! `spec.tls` of a Gateway: validation of clients' certificates, and the certificate that it shows to backends.

use std::sync::Arc;

use super::Config;
use super::certificates::Certificates;
use super::conditions::{Problem, condition, merge};
use super::grant::{self, From};
use super::inputs::Inputs;
use crate::certificate::{Authorities, Certificate};
use crate::snapshot::{ClientTrust, ObjectName};
use crate::status::Condition;
use crate::status::names::{kind, reason};
use crate::store::objects::{ClientValidation, Gateway, ListenerSpec, ObjectRef};

/// What validation of clients' certificates means for one listener.
#[derive(Debug, Default)]
pub(super) struct Frontend {
    /// ResolvedRefs=False.
    pub(super) unresolved: Option<Problem>,
    /// Accepted=False.
    pub(super) problem: Option<Problem>,
    /// Absent: clients are not asked.
    pub(super) clients: Option<Arc<ClientTrust>>,
}

/// Only listeners that terminate TLS ask clients for certificates.
pub(super) fn frontend(
    gateway: &Gateway,
    listener: &ListenerSpec,
    certificates: &mut Certificates,
    inputs: &Inputs<'_>,
    config: &Config,
) -> Frontend {
    let port = listener.port.map(|port| i32::from(port.get()));
    let per_port = gateway.tls.frontend_per_port.iter().find(|(of, _)| Some(*of) == port);
    let validation =
        per_port.map_or(gateway.tls.frontend_default.as_ref(), |(_, validation)| validation.as_ref());
    let Some(validation) = validation.filter(|_| listener.protocol.terminates_tls()) else {
        return Frontend::default();
    };
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for reference in &validation.authorities {
        match authority(gateway, reference, certificates, inputs, config) {
            Ok(authorities) => good.push(authorities),
            Err(problem) => bad.push(problem),
        }
    }
    let unresolved = merge(bad);
    let allows_insecure_fallback = validation.allows_insecure_fallback;
    match Authorities::union(&good) {
        // Serving without the validation that was asked for would let everyone in.
        None => {
            let message = "spec.tls.frontend: no authority for clients' certificates is left";
            let problem = Some(Problem::new(reason::NO_VALID_CA_CERTIFICATE, message));
            Frontend { unresolved, problem, clients: None }
        }
        Some(authorities) => {
            let clients = Some(Arc::new(ClientTrust { authorities, allows_insecure_fallback }));
            Frontend { unresolved, problem: None, clients }
        }
    }
}

fn authority(
    gateway: &Gateway,
    reference: &ObjectRef,
    certificates: &mut Certificates,
    inputs: &Inputs<'_>,
    config: &Config,
) -> Result<Arc<Authorities>, Problem> {
    let ObjectRef { group, kind, namespace, name } = reference;
    if !(group.is_empty() && &**kind == "ConfigMap") {
        let message = format!("{name} is a {kind} of group {group:?}; only core ConfigMaps are supported");
        return Err(Problem::new(reason::INVALID_CA_CERTIFICATE_KIND, message));
    }
    let own = &gateway.meta.name.namespace;
    let name = ObjectName::new(namespace.as_ref().unwrap_or(own).clone(), name.clone());
    grant::check(inputs.store(), config, From { kind: "Gateway", namespace: own }, "ConfigMap", &name)?;
    let authorities = certificates.authorities.get(inputs, &name);
    authorities.map_err(|message| Problem::new(reason::INVALID_CA_CERTIFICATE_REF, message))
}

/// What the Gateway shows to backends that are spoken to by TLS. `None`: nothing is configured.
pub(super) fn client_certificate(
    gateway: &Gateway,
    certificates: &mut Certificates,
    inputs: &Inputs<'_>,
    config: &Config,
) -> Option<Result<Arc<Certificate>, Problem>> {
    let reference = gateway.tls.client_certificate.as_ref()?;
    let from = From { kind: "Gateway", namespace: &gateway.meta.name.namespace };
    let resolved = certificates.one(reference, from, inputs, config);
    Some(resolved.map_err(|mut problem| {
        if problem.reason == reason::INVALID_CERTIFICATE_REF {
            problem.reason = reason::INVALID_CLIENT_CERTIFICATE_REF;
        }
        problem
    }))
}

/// The Gateway's own conditions about `spec.tls`.
pub(super) fn gateway_conditions(
    gateway: &Gateway,
    certificates: &mut Certificates,
    inputs: &Inputs<'_>,
    config: &Config,
) -> Vec<Condition> {
    let mut conditions = Vec::new();
    if let Some(resolved) = client_certificate(gateway, certificates, inputs, config) {
        let message = "the client certificate resolves; backends with a BackendTLSPolicy see it";
        let problem = resolved.as_ref().err();
        conditions.push(condition(kind::RESOLVED_REFS, reason::RESOLVED_REFS, message, problem));
    }
    let per_port = gateway.tls.frontend_per_port.iter().filter_map(|(_, validation)| validation.as_ref());
    let is_insecure = |validation: &ClientValidation| validation.allows_insecure_fallback;
    if gateway.tls.frontend_default.iter().chain(per_port).any(is_insecure) {
        let message = "spec.tls.frontend lets clients in whose certificates are not valid";
        let kind = kind::INSECURE_FRONTEND_VALIDATION_MODE;
        conditions.push(Condition::new(kind, true, reason::CONFIGURATION_CHANGED, message));
    }
    conditions
}
