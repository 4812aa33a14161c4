//! `spec.tls` of a Gateway: validation of clients' certificates, and the certificate that it shows to backends.

use super::Config;
use super::authority;
use super::certificates::Certificates;
use super::conditions::{Problem, condition, merge};
use super::grant::{self, From};
use super::inputs::Inputs;
use crate::snapshot::ObjectName;
use crate::status::Condition;
use crate::status::names::{kind, reason};
use crate::store::objects::{ClientValidation, Gateway, ListenerProtocol, ListenerSpec, ObjectRef};

/// What validation of clients' certificates means for one listener.
#[derive(Debug, Default)]
pub(super) struct Frontend {
    /// ResolvedRefs=False.
    pub(super) unresolved: Option<Problem>,
    /// Accepted=False.
    pub(super) problem: Option<Problem>,
}

/// Only listeners that terminate TLS for HTTP ask clients for certificates.
pub(super) fn frontend(
    gateway: &Gateway,
    listener: &ListenerSpec,
    inputs: &Inputs<'_>,
    config: &Config,
) -> Frontend {
    let port = listener.port.map(|port| i32::from(port.get()));
    let per_port = gateway.tls.frontend_per_port.iter().find(|(of, _)| Some(*of) == port);
    let validation =
        per_port.map_or(gateway.tls.frontend_default.as_ref(), |(_, validation)| validation.as_ref());
    let Some(validation) = validation.filter(|_| listener.protocol == ListenerProtocol::Https) else {
        return Frontend::default();
    };
    let bad: Vec<Problem> = validation
        .authorities
        .iter()
        .filter_map(|reference| authority(gateway, reference, inputs, config).err())
        .collect();
    let n_good = validation.authorities.len() - bad.len();
    let unresolved = merge(bad);
    let problem = if n_good == 0 {
        let message = "spec.tls.frontend: no authority for clients' certificates is left";
        Problem::new(reason::NO_VALID_CA_CERTIFICATE, message)
    } else {
        // Serving without the validation that was asked for would let everyone in.
        let message =
            "spec.tls.frontend: clients' certificates cannot be validated by this version of the agent";
        Problem::new(reason::UNSUPPORTED_VALUE, message)
    };
    Frontend { unresolved, problem: Some(problem) }
}

fn authority(
    gateway: &Gateway,
    reference: &ObjectRef,
    inputs: &Inputs<'_>,
    config: &Config,
) -> Result<(), Problem> {
    let ObjectRef { group, kind, namespace, name } = reference;
    if !(group.is_empty() && &**kind == "ConfigMap") {
        let message = format!("{name} is a {kind} of group {group:?}; only core ConfigMaps are supported");
        return Err(Problem::new(reason::INVALID_CA_CERTIFICATE_KIND, message));
    }
    let own = &gateway.meta.name.namespace;
    let name = ObjectName { namespace: namespace.as_ref().unwrap_or(own).clone(), name: name.clone() };
    grant::check(inputs.store(), config, From { kind: "Gateway", namespace: own }, "ConfigMap", &name)?;
    authority::check(inputs, &name)
        .map_err(|message| Problem::new(reason::INVALID_CA_CERTIFICATE_REF, message))
}

/// The Gateway's own conditions about `spec.tls`.
pub(super) fn gateway_conditions(
    gateway: &Gateway,
    certificates: &mut Certificates,
    inputs: &Inputs<'_>,
    config: &Config,
) -> Vec<Condition> {
    let mut conditions = Vec::new();
    if let Some(reference) = &gateway.tls.client_certificate {
        let from = From { kind: "Gateway", namespace: &gateway.meta.name.namespace };
        let problem = certificates.one(reference, from, inputs, config).err().map(|mut problem| {
            if problem.reason == reason::INVALID_CERTIFICATE_REF {
                problem.reason = reason::INVALID_CLIENT_CERTIFICATE_REF;
            }
            problem
        });
        let message =
            "the client certificate resolves; this version of the agent does not show it to backends";
        conditions.push(condition(kind::RESOLVED_REFS, reason::RESOLVED_REFS, message, problem.as_ref()));
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
