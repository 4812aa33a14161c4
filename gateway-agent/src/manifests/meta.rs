//! `metadata`, which has the same rules in every kind.
//!
//! **Invariant:** pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::names;
use super::path::FieldPath;
use super::report::Report;
use crate::api::Kind;

/// What the API server allows all keys and values of `metadata.annotations` together.
const MAX_ANNOTATION_BYTES: usize = 256 << 10;

pub(super) const DEFAULT_NAMESPACE: &str = "default";

/// Fills in the namespace and reports what the API server would refuse.
pub(super) fn check(kind: Kind, meta: &mut ObjectMeta, report: &mut Report<'_>) {
    let path = FieldPath::from("metadata");
    match meta.name.as_deref() {
        Some(name) if !name.is_empty() => {
            let result = match kind {
                Kind::Namespace | Kind::Service => names::label(name),
                _ => names::subdomain(name),
            };
            if let Err(message) = result {
                report.error(&path.field("name"), message);
            }
        }
        _ if meta.generate_name.is_some() => {
            report.error(
                &path.field("generateName"),
                "there is no API server to make a name; write metadata.name",
            );
        }
        _ => report.error(&path.field("name"), "required, but missing"),
    }
    if kind.is_namespaced() {
        let namespace = meta.namespace.get_or_insert_default();
        if namespace.is_empty() {
            DEFAULT_NAMESPACE.clone_into(namespace);
        }
        if let Err(message) = names::label(namespace) {
            report.error(&path.field("namespace"), message);
        }
    } else if meta.namespace.as_ref().is_some_and(|namespace| !namespace.is_empty()) {
        report.error(&path.field("namespace"), format!("a {kind} has no namespace"));
    }
    if let Some(labels) = &meta.labels {
        check_labels(labels, &path.field("labels"), report);
    }
    if let Some(annotations) = &meta.annotations {
        let path = path.field("annotations");
        for name in annotations.keys() {
            // Other than that of a label, its prefix may have capitals.
            if let Err(message) = names::qualified(&name.to_ascii_lowercase()) {
                report.error(&path.field(name), message);
            }
        }
        let size: usize = annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
        if size > MAX_ANNOTATION_BYTES {
            report.error(&path, format!("{size} bytes in all, at most {MAX_ANNOTATION_BYTES} are allowed"));
        }
    }
}

fn check_labels(labels: &BTreeMap<String, String>, path: &FieldPath, report: &mut Report<'_>) {
    for (name, value) in labels {
        if let Err(message) = names::qualified(name).and_then(|()| names::label_value(value)) {
            report.error(&path.field(name), message);
        }
    }
}
