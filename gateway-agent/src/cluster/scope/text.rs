//! Names and text of the scope ConfigMap.
//!
//! **Invariant:** pure.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// A ConfigMap's name and its keys have at most this many characters, a field manager's name 128.
const MAX_NAME: usize = 253;
const MAX_MANAGER: usize = 128;

const REPLICA: &str = "replica.";

/// What all replicas of an agent have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeFacts {
    pub version: String,
    pub controller_name: String,
    /// `None`: all namespaces.
    pub namespaces: Option<Vec<String>>,
    /// With `--gateway`: the only one.
    pub gateway: Option<String>,
    pub features: Vec<String>,
}

/// How one replica does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaReport {
    pub version: String,
    pub node: Option<String>,
    /// The snapshot that was published last, counted by the replica.
    pub revision: u64,
    /// The data paths have been behind it since, in seconds since the epoch.
    pub lagging_since: Option<u64>,
    /// Whether everything has been seen once.
    pub is_synced: bool,
    /// Data path and mechanism.
    pub datapaths: BTreeMap<String, String>,
    /// Watches that do not follow their kind, and why.
    pub unwatched: Vec<String>,
}

impl ScopeFacts {
    pub(super) fn data(&self, class: &str) -> Value {
        let Self { version, controller_name, namespaces, gateway, features } = self;
        let mut data = json!({
            "version": version,
            "controllerName": controller_name,
            "gatewayClassName": class,
            "watchedNamespaces": namespaces.as_ref().map_or_else(|| "*".to_owned(), |names| names.join("\n")),
            "supportedFeatures": features.join("\n"),
        });
        if let Some(gateway) = gateway {
            data["gateway"] = gateway.as_str().into();
        }
        data
    }
}

impl ReplicaReport {
    /// Whether nothing differs but the count of revisions.
    pub(super) fn is_same_state(&self, other: &Self) -> bool {
        Self { revision: 0, ..self.clone() } == Self { revision: 0, ..other.clone() }
    }

    pub(super) fn text(&self, now: &Timestamp) -> String {
        let Self { version, node, revision, lagging_since, is_synced, datapaths, unwatched } = self;
        let since = lagging_since.and_then(|since| Timestamp::from_second(i64::try_from(since).ok()?).ok());
        let mut text = json!({
            "version": version,
            "revision": revision,
            "isSynced": is_synced,
            "dataPaths": datapaths,
            "renewed": seconds(now),
        });
        for (field, value) in [("node", node.clone()), ("laggingSince", since.as_ref().map(seconds))] {
            if let Some(value) = value {
                text[field] = value.into();
            }
        }
        if !unwatched.is_empty() {
            text["unwatched"] = unwatched.clone().into();
        }
        // A `Value` has string keys only and no other way to fail.
        serde_json::to_string_pretty(&text).unwrap_or_default()
    }
}

fn seconds(time: &Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether `text` under `key` is of a replica that has not renewed it for `patience`.
pub(super) fn is_outdated(key: &str, text: &str, now: &Timestamp, patience: Duration) -> bool {
    if !key.starts_with(REPLICA) {
        return false;
    }
    let renewed = serde_json::from_str::<Value>(text)
        .ok()
        .and_then(|text| text.get("renewed")?.as_str()?.parse::<Timestamp>().ok());
    let patience = i64::try_from(patience.as_secs()).unwrap_or(i64::MAX);
    // Text that is none of a replica's is nobody's.
    renewed.is_none_or(|renewed| now.as_second().saturating_sub(renewed.as_second()) > patience)
}

pub(super) fn config_map_name(class: &str) -> String {
    bounded(format!("gateway-agent-{class}"), MAX_NAME)
}

pub(super) fn replica_key(replica: &str) -> String {
    bounded(format!("{REPLICA}{replica}"), MAX_NAME)
}

/// The field manager of a replica's own key.
pub(super) fn manager(replica: &str) -> String {
    bounded(format!("gateway-agent-{replica}"), MAX_MANAGER)
}

/// A name that is too long keeps its beginning and is told apart by a hash.
fn bounded(name: String, max: usize) -> String {
    if name.len() <= max {
        return name;
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let suffix = format!("-{:016x}", hasher.finish());
    // Names of Kubernetes objects are ASCII; any other is cut before the character that does not fit.
    let mut end = max - suffix.len();
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_stay_apart() {
        assert_eq!(config_map_name("gateway-agent"), "gateway-agent-gateway-agent");
        let long = |last: char| "x".repeat(252) + &last.to_string();
        let (one, other) = (config_map_name(&long('a')), config_map_name(&long('b')));
        assert_eq!((one.len(), other.len()), (253, 253));
        assert_ne!(one, other);
        assert_eq!(manager(&long('a')).len(), 128);
        assert_eq!(replica_key("pod-1"), "replica.pod-1");
    }

    #[test]
    fn only_replicas_that_are_silent_for_long_are_outdated() {
        let time = |text: &str| text.parse::<Timestamp>().expect("a time");
        let text = ReplicaReport::default().text(&time("2026-01-01T00:00:00Z"));
        let outdated = |key, text: &str, now| is_outdated(key, text, &time(now), Duration::from_secs(60));
        assert!(!outdated("replica.a", &text, "2026-01-01T00:01:00Z"));
        assert!(outdated("replica.a", &text, "2026-01-01T00:01:01Z"));
        assert!(!outdated("replica.a", &text, "2025-12-31T00:00:00Z"));
        assert!(!outdated("version", &text, "2026-01-02T00:00:00Z"));
        assert!(outdated("replica.a", "not of ours", "2026-01-01T00:00:00Z"));
    }

    #[test]
    fn a_revision_alone_is_no_change_of_state() {
        let report = ReplicaReport { revision: 1, ..ReplicaReport::default() };
        assert!(report.is_same_state(&ReplicaReport { revision: 2, ..report.clone() }));
        assert!(!report.is_same_state(&ReplicaReport { lagging_since: Some(1), ..report.clone() }));
    }

    #[test]
    fn facts_are_lines_that_a_person_can_read() {
        let facts = ScopeFacts {
            version: "1".into(),
            controller_name: "c/x".into(),
            namespaces: Some(vec!["a".into(), "b".into()]),
            gateway: None,
            features: vec!["Gateway".into(), "HTTPRoute".into()],
        };
        assert_eq!(
            facts.data("k"),
            json!({"version": "1", "controllerName": "c/x", "gatewayClassName": "k", "watchedNamespaces": "a\nb",
                "supportedFeatures": "Gateway\nHTTPRoute"})
        );
        assert_eq!(ScopeFacts { namespaces: None, ..facts }.data("k")["watchedNamespaces"], "*");
    }
}
