//! BackendTLSPolicy.

use super::{hostname, meta, optional, shared};
use crate::api::BackendTlsPolicy as ApiPolicy;
use crate::api::backendtlspolicies::{
    BackendTlsPolicySpec, BackendTlsPolicyValidation,
    BackendTlsPolicyValidationSubjectAltNamesType as AlternativeNameType,
};
use crate::snapshot::{ObjectName, SubjectName};
use crate::store::objects::{BackendTlsPolicy, LocalRef, PolicyTarget};

pub(in crate::store) fn backend_tls_policy(
    policy: &ApiPolicy,
    name: &ObjectName,
    order: u64,
) -> BackendTlsPolicy {
    // Destructured fully, so that a field of a newer API cannot be passed over.
    let BackendTlsPolicySpec { options, target_refs, validation } = &policy.spec;
    let BackendTlsPolicyValidation {
        ca_certificate_refs,
        hostname: server_name,
        subject_alt_names,
        well_known_ca_certificates,
    } = validation;
    BackendTlsPolicy {
        meta: meta(name, &policy.metadata, order),
        targets: target_refs
            .iter()
            .map(|target| PolicyTarget {
                reference: LocalRef {
                    group: shared(&target.group),
                    kind: shared(&target.kind),
                    name: shared(&target.name),
                },
                section: optional(target.section_name.as_ref()),
            })
            .collect(),
        hostname: hostname(server_name),
        authorities: ca_certificate_refs
            .iter()
            .flatten()
            .map(|authority| LocalRef {
                group: shared(&authority.group),
                kind: shared(&authority.kind),
                name: shared(&authority.name),
            })
            .collect(),
        well_known_authorities: optional(well_known_ca_certificates.as_ref()),
        alternative_names: subject_alt_names
            .iter()
            .flatten()
            // The schema wants the one that the type names; an empty name is that of no certificate.
            .map(|name| match name.r#type {
                AlternativeNameType::Hostname => {
                    SubjectName::Hostname(hostname(name.hostname.as_deref().unwrap_or_default()))
                }
                AlternativeNameType::Uri => SubjectName::Uri(shared(name.uri.as_deref().unwrap_or_default())),
            })
            .collect(),
        options: options.iter().flatten().map(|(key, _)| shared(key)).collect(),
    }
}
