//! Objects of ours as the API has them, and whether they are as wanted.
//!
//! Compared as server-side apply sees it: what we do not set is not ours to judge, what others added to lists with keys
//! stays. Whether a field was dropped from what we set cannot be seen so; the digest of the manifest tells.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::names::{
    CLASS_ANNOTATION, CONTROLLER_ANNOTATION, DIGEST_ANNOTATION, GATEWAY_ANNOTATION, MANAGED_BY_LABEL,
    MANAGER, Marker, digest,
};
use super::{Change, Manifest};

/// A Service or EndpointSlice that an agent made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    pub uid: Arc<str>,
    pub marker: Marker,
    /// What may be ours of it, in the API's own form.
    body: Value,
}

impl Managed {
    /// `None`: made by somebody else.
    pub fn service(service: &Service) -> Option<Self> {
        Self::new(&service.metadata, || json!({"spec": service.spec}))
    }

    pub fn slice(slice: &EndpointSlice) -> Option<Self> {
        Self::new(
            &slice.metadata,
            || json!({"addressType": slice.address_type, "endpoints": slice.endpoints, "ports": slice.ports}),
        )
    }

    fn new(metadata: &ObjectMeta, body: impl FnOnce() -> Value) -> Option<Self> {
        let is_managed = metadata.labels.as_ref()?.get(MANAGED_BY_LABEL).is_some_and(|by| by == MANAGER);
        let annotation =
            |key: &str| metadata.annotations.as_ref()?.get(key).map(|value| Arc::from(value.as_str()));
        let marker = Marker {
            controller: annotation(CONTROLLER_ANNOTATION)?,
            class: annotation(CLASS_ANNOTATION)?,
            gateway: annotation(GATEWAY_ANNOTATION).filter(|_| is_managed)?,
        };
        let mut body = body();
        body["metadata"] = json!({
            "labels": metadata.labels,
            "annotations": metadata.annotations,
            "ownerReferences": metadata.owner_references,
        });
        Some(Self { uid: metadata.uid.as_deref().unwrap_or_default().into(), marker, body })
    }

    /// The write that makes it `manifest`; `None` where it is so already.
    pub fn change(&self, manifest: Manifest) -> Option<Change> {
        let is_as_wanted = covers(&self.body, &manifest.body);
        (!is_as_wanted).then(|| Change::Apply { manifest, uid: self.uid.clone() })
    }
}

/// Whom an object is made for.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    pub marker: &'a Marker,
    pub gateway_uid: &'a str,
    /// Labels and annotations that the user wants on it; ours are stronger.
    pub labels: &'a BTreeMap<Arc<str>, Arc<str>>,
    pub annotations: &'a BTreeMap<Arc<str>, Arc<str>>,
}

/// The `metadata` of an object, but its name and namespace.
pub(super) fn metadata<'a>(
    owner: &'a Owner<'a>,
    labels: impl IntoIterator<Item = (&'a str, String)>,
    annotations: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Value {
    let Owner { marker, gateway_uid, .. } = owner;
    let text = |value: &str| Value::from(value);
    let mut all_labels: BTreeMap<&str, Value> =
        owner.labels.iter().map(|(key, value)| (&**key, text(value))).collect();
    all_labels.extend(labels.into_iter().map(|(key, value)| (key, Value::from(value))));
    all_labels.insert(MANAGED_BY_LABEL, text(MANAGER));
    let mut all_annotations: BTreeMap<&str, Value> =
        owner.annotations.iter().map(|(key, value)| (&**key, text(value))).collect();
    all_annotations.extend(annotations.into_iter().map(|(key, value)| (key, text(value))));
    all_annotations.insert(CONTROLLER_ANNOTATION, text(&marker.controller));
    all_annotations.insert(CLASS_ANNOTATION, text(&marker.class));
    all_annotations.insert(GATEWAY_ANNOTATION, text(&marker.gateway));
    let object = |entries: BTreeMap<&str, Value>| {
        Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
    };
    json!({
        "labels": object(all_labels),
        "annotations": object(all_annotations),
        // Not `blockOwnerDeletion`: it takes a right on the Gateway's finalizers in some clusters.
        "ownerReferences": [{
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "name": &*marker.gateway,
            "uid": gateway_uid,
        }],
    })
}

/// Puts the digest of all the rest into `body`.
pub(super) fn seal(mut body: Value) -> Value {
    let digest = digest(body.to_string().as_bytes());
    body["metadata"]["annotations"][DIGEST_ANNOTATION] = format!("{digest:016x}").into();
    body
}

/// Whether `stored` has all of `wanted`.
fn covers(stored: &Value, wanted: &Value) -> bool {
    let Value::Object(wanted) = wanted else {
        return false;
    };
    wanted.iter().all(|(key, wanted)| match key.as_str() {
        // They say which object it is.
        "apiVersion" | "kind" => true,
        "metadata" => wanted.as_object().is_some_and(|wanted| {
            let mut ours = wanted.iter().filter(|(key, _)| !matches!(key.as_str(), "name" | "namespace"));
            ours.all(|(key, wanted)| has(&stored["metadata"][key], wanted, key == "ownerReferences"))
        }),
        "spec" => wanted.as_object().is_some_and(|wanted| {
            wanted.iter().all(|(key, wanted)| has(&stored["spec"][key], wanted, key == "ports"))
        }),
        key => has(&stored[key], wanted, false),
    })
}

/// `is_keyed`: a list whose elements have keys; others may add to it. All other lists are whole.
fn has(stored: &Value, wanted: &Value, is_keyed: bool) -> bool {
    match (stored, wanted) {
        (Value::Object(stored), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| stored.get(key).is_some_and(|stored| has(stored, wanted, false))),
        (Value::Array(stored), Value::Array(wanted)) if is_keyed => {
            wanted.iter().all(|wanted| stored.iter().any(|stored| has(stored, wanted, false)))
        }
        (Value::Array(stored), Value::Array(wanted)) => {
            stored.len() == wanted.len()
                && stored.iter().zip(wanted).all(|(stored, wanted)| has(stored, wanted, false))
        }
        (stored, wanted) => stored == wanted,
    }
}
