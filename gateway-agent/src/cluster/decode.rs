//! JSON of the API to objects of ours, one by one.
//!
//! What the agent never reads is dropped before anything is kept: Secrets lose all keys but those of a certificate,
//! ConfigMaps all large values but a CA's. An object that does not fit its type is said with its field, and is the only
//! one that is missing (O50).
//!
//! **Invariant:** pure.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::kinds::{Resource, resource};
use crate::api::Object;
use crate::api::{Kind, ObjectId};
use crate::snapshot::ObjectName;

/// The keys of a Secret that can be part of a listener's or a backend's TLS.
const SECRET_KEYS: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

/// Parameters are short; what is longer is another program's configuration file. Its key stays, so that a parameter
/// that is none can be named.
const MAX_VALUE: usize = 4096;

/// More keys than there are parameters by far.
const MAX_KEYS: usize = 64;

const CA_KEY: &str = "ca.crt";

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// One object of the API, pruned.
#[derive(Debug)]
pub(super) struct Raw {
    pub id: ObjectId,
    pub value: Value,
}

/// Why an object is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    /// Such as `spec.listeners[0].port`; empty for the whole object.
    pub field: String,
    pub message: String,
}

/// Names the object and drops what is not read. `None`: it has no name, so that nothing can be said of it.
pub(super) fn prune(kind: Kind, version: &str, mut value: Value) -> Option<Raw> {
    let resource = resource(kind);
    let fields = value.as_object_mut()?;
    name_type(fields, &resource, version);
    let metadata = fields.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("managedFields");
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove(LAST_APPLIED);
    }
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (name, namespace) = (text("name"), text("namespace"));
    if name.is_empty() {
        return None;
    }
    match kind {
        Kind::Secret => prune_secret(fields),
        Kind::ConfigMap => prune_config_map(fields),
        _ => {}
    }
    let name = ObjectName::new(namespace, name);
    Some(Raw { id: ObjectId { kind, name }, value })
}

/// Items of a list come without their type.
fn name_type(fields: &mut Map<String, Value>, resource: &Resource, version: &str) {
    fields.entry("apiVersion").or_insert_with(|| resource.api_version(version).into());
    fields.entry("kind").or_insert_with(|| resource.kind.into());
}

fn prune_secret(fields: &mut Map<String, Value>) {
    if let Some(Value::Object(data)) = fields.get_mut("data") {
        data.retain(|key, _| SECRET_KEYS.contains(&key.as_str()));
    }
}

fn prune_config_map(fields: &mut Map<String, Value>) {
    fields.remove("binaryData");
    let Some(Value::Object(data)) = fields.get_mut("data") else { return };
    let mut kept = 0;
    data.retain(|key, _| {
        kept += 1;
        kept <= MAX_KEYS || key == CA_KEY
    });
    for (key, value) in data.iter_mut() {
        let is_long = value.as_str().is_some_and(|text| text.len() > MAX_VALUE);
        if is_long && key != CA_KEY {
            *value = Value::String(String::new());
        }
    }
}

impl Raw {
    /// For a later start without the API: as pruned, without what changes and is not read, so that a status that is
    /// written makes no other record.
    pub(super) fn to_stored(&self) -> Vec<u8> {
        let mut value = self.value.clone();
        if let Some(fields) = value.as_object_mut() {
            match (self.id.kind, fields.get_mut("status")) {
                (Kind::Gateway, Some(Value::Object(status))) => status.retain(|key, _| key == "addresses"),
                (Kind::Service, _) => {}
                _ => {
                    fields.remove("status");
                }
            }
        }
        if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
            metadata.remove("resourceVersion");
        }
        // A `Value` has string keys only and no other way to fail.
        serde_json::to_vec(&value).unwrap_or_default()
    }

    pub(super) fn into_object(self) -> Result<Object, Malformed> {
        let value = self.value;
        Ok(match self.id.kind {
            Kind::BackendTlsPolicy => Object::BackendTlsPolicy(typed(value)?),
            Kind::ConfigMap => Object::ConfigMap(typed(value)?),
            Kind::EndpointSlice => Object::EndpointSlice(typed(value)?),
            Kind::Gateway => Object::Gateway(typed(value)?),
            Kind::GrpcRoute => Object::GrpcRoute(typed(value)?),
            Kind::HttpRoute => Object::HttpRoute(typed(value)?),
            Kind::ListenerSet => Object::ListenerSet(typed(value)?),
            Kind::Namespace => Object::Namespace(typed(value)?),
            Kind::ReferenceGrant => Object::ReferenceGrant(typed(value)?),
            Kind::Secret => Object::Secret(typed(value)?),
            Kind::Service => Object::Service(typed(value)?),
            Kind::TcpRoute => Object::TcpRoute(typed(value)?),
            Kind::TlsRoute => Object::TlsRoute(typed(value)?),
            Kind::UdpRoute => Object::UdpRoute(typed(value)?),
        })
    }
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<Box<T>, Malformed> {
    serde_path_to_error::deserialize(value).map(Box::new).map_err(|error| {
        let field = error.path().to_string();
        // The path of the whole is written as a dot.
        let field = if field == "." { String::new() } else { field };
        Malformed { field, message: error.into_inner().to_string() }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{MAX_KEYS, Malformed, prune};
    use crate::api::Kind;
    use crate::api::Object;

    fn route(port: Value) -> Value {
        json!({
            "metadata": {"namespace": "ns", "name": "r", "resourceVersion": "7",
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}},
            "spec": {"rules": [{"backendRefs": [{"name": "web", "port": port}]}]},
            "status": {"parents": []},
        })
    }

    #[test]
    fn an_object_is_named_and_loses_what_is_not_read() {
        let raw = prune(Kind::TcpRoute, "v1", route(json!(80))).expect("named");
        assert_eq!((&*raw.id.name.namespace, &*raw.id.name.name), ("ns", "r"));
        let stored: Value = serde_json::from_slice(&raw.to_stored()).expect("JSON");
        assert_eq!(stored["apiVersion"], "gateway.networking.k8s.io/v1");
        assert_eq!(stored["kind"], "TCPRoute");
        assert_eq!(stored["metadata"]["annotations"], json!({"a": "b"}));
        assert!(stored.get("status").is_none() && stored["metadata"].get("managedFields").is_none());
        assert!(matches!(raw.into_object(), Ok(Object::TcpRoute(_))));
    }

    // O50: a malformed object is told with its field.
    #[test]
    fn a_malformed_object_is_told_with_its_field() {
        let raw = prune(Kind::TcpRoute, "v1", route(json!("http"))).expect("named");
        let Err(Malformed { field, message }) = raw.into_object() else { panic!("malformed") };
        assert_eq!(field, "spec.rules[0].backendRefs[0].port");
        assert!(message.contains("invalid type: string \"http\""), "{message}");
    }

    #[test]
    fn what_has_no_name_is_nothing() {
        assert!(prune(Kind::Service, "v1", json!({"metadata": {}})).is_none());
        assert!(prune(Kind::Service, "v1", json!([])).is_none());
    }

    #[test]
    fn of_a_secret_only_a_certificate_is_kept() {
        let data = json!({"tls.crt": "AA==", "tls.key": "AA==", "ca.crt": "AA==", "password": "AA=="});
        let secret = json!({"metadata": {"namespace": "ns", "name": "s"}, "data": data});
        let raw = prune(Kind::Secret, "v1", secret).expect("named");
        let keys: Vec<_> = raw.value["data"].as_object().expect("data").keys().map(String::as_str).collect();
        assert_eq!(keys, ["tls.crt", "tls.key", "ca.crt"]);
    }

    #[test]
    fn a_large_config_map_becomes_a_small_one() {
        let mut data: serde_json::Map<_, _> = (0..200).map(|n| (format!("k{n}"), Value::from("v"))).collect();
        data.insert("big".into(), "x".repeat(100_000).into());
        data.shift_insert(0, "nginx.conf".into(), "x".repeat(100_000).into());
        data.insert("ca.crt".into(), "y".repeat(100_000).into());
        let map =
            json!({"metadata": {"namespace": "ns", "name": "m"}, "data": data, "binaryData": {"b": ""}});
        let raw = prune(Kind::ConfigMap, "v1", map).expect("named");
        let data = raw.value["data"].as_object().expect("data");
        assert_eq!(data.len(), MAX_KEYS + 1);
        assert_eq!(data["nginx.conf"], "");
        assert_eq!(data["ca.crt"].as_str().map(str::len), Some(100_000));
        assert!(raw.value.get("binaryData").is_none());
    }
}
