//! What the user is told of each object: conditions joined with what the data paths acknowledged.
//!
//! **Invariant:** pure: values in, values and text out. Whoever calls writes them.

mod differences;
pub mod names;
mod plan;
mod problems;
pub mod schedule;
mod table;
pub mod view;
pub mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

pub use differences::{find, position};
pub use plan::{acknowledged, gateway_accepted, join, listener_set_accepted};
pub use problems::{ObjectProblem, problems};
pub use table::{Changes, changed, render};

use crate::api::Kind;
use crate::snapshot::{ListenerKey, ListenerName, ObjectName, Revision};
use crate::store::objects::ParentRef;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionStatus {
    False,
    True,
    Unknown,
}

/// A Kubernetes condition without its transition time, which only the writer knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// As in the spec: `Accepted`, `Programmed`, `ResolvedRefs`, `Conflicted`, ...
    pub kind: &'static str,
    pub status: ConditionStatus,
    /// As in the spec: gateway_types.go, httproute_types.go, shared_types.go.
    pub reason: &'static str,
    pub message: String,
}

/// What a set of conditions is about, within its object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The object itself.
    Object,
    /// An entry of `status.listeners`.
    Listener(String),
    /// An entry of `status.parents`: the position in `spec.parentRefs`, the parentRef as it is there, and what it names.
    Parent { index: usize, parent: Parent, reference: ParentRef },
    /// An entry of a policy's `status.ancestors`.
    Ancestor { gateway: ObjectName },
}

/// What routes attach to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parent {
    pub kind: ParentKind,
    pub name: ObjectName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ParentKind {
    Gateway,
    ListenerSet,
}

/// An entry of a Gateway's `status.addresses`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    Ip(IpAddr),
    Hostname(Arc<str>),
}

impl Address {
    /// As in the spec.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Ip(_) => "IPAddress",
            Self::Hostname(_) => "Hostname",
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Hostname(name) => name.fmt(f),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeStatus {
    pub scope: Scope,
    pub conditions: Vec<Condition>,
    /// Listeners only: routes Accepted there.
    pub attached_routes: usize,
    /// Listeners only: route kinds that may attach.
    pub supported_kinds: Vec<&'static str>,
    /// Listeners only: whether it could be served, the data paths permitting.
    pub is_valid: bool,
    /// Listeners only: the data-path entries it is part of, one per address; empty where it is not served.
    pub keys: Vec<ListenerKey>,
}

/// An object that has a status of ours. A route none of whose parents is ours has no scopes: it is shown to the user as
/// unattached, and there is nothing to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStatus {
    pub kind: &'static str,
    pub name: ObjectName,
    /// `metadata.generation` that the conditions speak of; 0 in a manifest without one.
    pub observed_generation: i64,
    /// Gateways only: `status.addresses`.
    pub addresses: Vec<Address>,
    /// Gateways only: `status.attachedListenerSets`.
    pub attached_listener_sets: Option<usize>,
    pub scopes: Vec<ScopeStatus>,
}

/// How one listener is served by one data path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// In use, and by which mechanism: `bind` or `sk_lookup` from the proxy, `tcx` or `clsact` from the kernel path.
    By(&'static str),
    /// Deliberately left to the other data path; the reason is for logs, the admin view and the table.
    Left(String),
    /// Cannot be served: a reason of the spec (such as `PortUnavailable`) and a message that names the cure.
    Failed { reason: &'static str, message: String },
}

/// The acknowledgement of one data path: everything of `revision` is in force as `listeners` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    pub revision: Revision,
    pub listeners: BTreeMap<ListenerKey, Served>,
}

impl ParentKind {
    /// The Kubernetes kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "Gateway",
            Self::ListenerSet => "ListenerSet",
        }
    }
}

impl Parent {
    /// The object that a listener is in.
    pub fn of(listener: &ListenerName) -> Self {
        match &listener.set {
            None => Self { kind: ParentKind::Gateway, name: listener.gateway.clone() },
            Some(set) => Self { kind: ParentKind::ListenerSet, name: set.clone() },
        }
    }
}

impl Condition {
    pub fn new(kind: &'static str, is_true: bool, reason: &'static str, message: impl Into<String>) -> Self {
        let status = if is_true { ConditionStatus::True } else { ConditionStatus::False };
        Self { kind, status, reason, message: message.into() }
    }
}

impl ObjectStatus {
    /// What to say of an object without scopes.
    pub(crate) fn unattached(&self) -> &'static str {
        if self.kind == Kind::BackendTlsPolicy.as_str() {
            "no route of a Gateway of this agent leads to its targets"
        } else {
            "no parentRef names a Gateway of this agent"
        }
    }
}

impl ScopeStatus {
    pub const fn new(scope: Scope, conditions: Vec<Condition>) -> Self {
        Self {
            scope,
            conditions,
            attached_routes: 0,
            supported_kinds: Vec::new(),
            is_valid: true,
            keys: Vec::new(),
        }
    }

    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// Replaces the condition of the same type, or adds it.
    fn set(&mut self, condition: Condition) {
        match self.conditions.iter_mut().find(|present| present.kind == condition.kind) {
            Some(present) => *present = condition,
            None => self.conditions.push(condition),
        }
    }
}

/// For tests and callers that look one up.
impl ObjectStatus {
    pub fn scope(&self, scope: &Scope) -> Option<&ScopeStatus> {
        self.scopes.iter().find(|candidate| candidate.scope == *scope)
    }

    pub fn listener(&self, name: &ListenerName) -> Option<&ScopeStatus> {
        let parent = Parent::of(name);
        if self.kind != parent.kind.as_str() || self.name != parent.name {
            return None;
        }
        self.scope(&Scope::Listener(name.section.to_string()))
    }
}
