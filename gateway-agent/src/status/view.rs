//! Statuses, and the snapshot with what became of it, as JSON: the boundary types of the admin server.
//!
//! **Invariant:** shape only; field names follow the Kubernetes status where there is one.

mod snapshot;

use serde::Serialize;

pub use snapshot::{
    BackendView, EntryView, HostView, MatchView, ServiceView, SnapshotView, TargetView, snapshot_view,
};

use super::table::status_text;
use super::{Condition, ObjectStatus, Scope, ScopeStatus};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectView {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    pub observed_generation: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_listener_sets: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<ParentView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<AncestorView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerView {
    pub name: String,
    pub attached_routes: usize,
    pub supported_kinds: Vec<&'static str>,
    /// Entries of the data paths, as `tcp/192.0.2.1:80`.
    pub entries: Vec<String>,
    pub conditions: Vec<ConditionView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentView {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    pub conditions: Vec<ConditionView>,
}

/// A Gateway that a policy has an effect on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AncestorView {
    pub namespace: String,
    pub name: String,
    pub conditions: Vec<ConditionView>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConditionView {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

impl From<&ObjectStatus> for ObjectView {
    fn from(status: &ObjectStatus) -> Self {
        let mut view = Self {
            kind: status.kind,
            namespace: status.name.namespace.to_string(),
            name: status.name.name.to_string(),
            observed_generation: status.observed_generation,
            addresses: status.addresses().iter().map(ToString::to_string).collect(),
            attached_listener_sets: status.attached_listener_sets(),
            conditions: Vec::new(),
            listeners: Vec::new(),
            parents: Vec::new(),
            ancestors: Vec::new(),
        };
        for scope in status.scopes.iter() {
            view.add(scope);
        }
        view
    }
}

impl ObjectView {
    fn add(&mut self, scope: &ScopeStatus) {
        let conditions = scope.conditions.iter().map(ConditionView::from).collect();
        match &scope.scope {
            Scope::Object => self.conditions = conditions,
            Scope::Listener(name) => self.listeners.push(ListenerView {
                name: name.clone(),
                attached_routes: scope.attached_routes(),
                supported_kinds: scope.supported_kinds().to_vec(),
                entries: scope.keys().iter().map(ToString::to_string).collect(),
                conditions,
            }),
            Scope::Parent { index: _, parent, section, port } => self.parents.push(ParentView {
                kind: parent.kind.as_str(),
                namespace: parent.name.namespace.to_string(),
                name: parent.name.name.to_string(),
                section_name: section.as_deref().map(str::to_owned),
                port: *port,
                conditions,
            }),
            Scope::Ancestor { gateway } => self.ancestors.push(AncestorView {
                namespace: gateway.namespace.to_string(),
                name: gateway.name.to_string(),
                conditions,
            }),
        }
    }
}

impl From<&Condition> for ConditionView {
    fn from(condition: &Condition) -> Self {
        Self {
            kind: condition.kind,
            status: status_text(condition.status),
            reason: condition.reason,
            message: condition.message.clone(),
        }
    }
}
