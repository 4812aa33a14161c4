//! What the user is told of each object: conditions joined with what the data paths acknowledged.
//!
//! **Invariant:** pure: values in, values and text out. Whoever calls writes them.

mod differences;
mod list;
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

pub use list::{StatusChanges, StatusList};
pub use plan::{acknowledged, gateway_accepted, join, listener_set_accepted};
pub use problems::{ObjectProblem, problems};
pub use table::{Changes, changed, render};

use crate::api::Kind;
use crate::snapshot::{ListenerKey, ListenerName, ObjectName, Revision};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionStatus {
    False,
    True,
    Unknown,
}

/// A Kubernetes condition without its transition time, which only the writer knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// As in the spec: `Accepted`, `Programmed`, `ResolvedRefs`, `Conflicted`, ...
    pub kind: &'static str,
    pub status: ConditionStatus,
    /// As in the spec: gateway_types.go, httproute_types.go, shared_types.go.
    pub reason: &'static str,
    pub message: String,
}

/// What a set of conditions is about, within its object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The object itself.
    Object,
    /// An entry of `status.listeners`.
    Listener(String),
    /// An entry of `status.parents`: the position in `spec.parentRefs`, and what the parentRef there names.
    Parent { index: usize, parent: Parent, section: Option<Arc<str>>, port: Option<i32> },
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

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScopeStatus {
    pub scope: Scope,
    pub conditions: Vec<Condition>,
    /// Apart, for listeners are few among scopes.
    listener: Option<Box<ListenerFacts>>,
}

/// What there is to say of a listener beside its conditions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenerFacts {
    /// Routes Accepted there.
    pub attached_routes: usize,
    /// Route kinds that may attach.
    pub supported_kinds: Vec<&'static str>,
    /// Whether it could be served, the data paths permitting.
    pub is_valid: bool,
    /// The data-path entries it is part of, one per address; empty where it is not served.
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
    /// Apart, for Gateways are few among objects.
    pub gateway: Option<Box<GatewayFacts>>,
    /// Routes that say the same of the same Gateway share theirs.
    pub scopes: Arc<[ScopeStatus]>,
}

/// What there is to say of a Gateway beside its conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayFacts {
    /// `status.addresses`.
    pub addresses: Vec<Address>,
    /// `status.attachedListenerSets`.
    pub attached_listener_sets: usize,
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
    /// Of an object that is no Gateway.
    pub fn new(
        kind: &'static str,
        name: ObjectName,
        observed_generation: i64,
        scopes: Vec<ScopeStatus>,
    ) -> Self {
        Self { kind, name, observed_generation, gateway: None, scopes: scopes.into() }
    }

    /// Empty for what is no Gateway.
    pub fn addresses(&self) -> &[Address] {
        self.gateway.as_ref().map_or(&[], |gateway| &gateway.addresses)
    }

    /// `None` for what is no Gateway.
    pub fn attached_listener_sets(&self) -> Option<usize> {
        self.gateway.as_ref().map(|gateway| gateway.attached_listener_sets)
    }

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
    /// Of anything but a listener.
    pub const fn new(scope: Scope, conditions: Vec<Condition>) -> Self {
        Self { scope, conditions, listener: None }
    }

    pub fn of_listener(section: String, conditions: Vec<Condition>, facts: ListenerFacts) -> Self {
        Self { scope: Scope::Listener(section), conditions, listener: Some(Box::new(facts)) }
    }

    /// `None` for anything but a listener.
    pub fn listener(&self) -> Option<&ListenerFacts> {
        self.listener.as_deref()
    }

    /// 0 for anything but a listener.
    pub fn attached_routes(&self) -> usize {
        self.listener().map_or(0, |facts| facts.attached_routes)
    }

    /// Empty for anything but a listener, as the next.
    pub fn supported_kinds(&self) -> &[&'static str] {
        self.listener().map_or(&[], |facts| &facts.supported_kinds)
    }

    pub fn keys(&self) -> &[ListenerKey] {
        self.listener().map_or(&[], |facts| &facts.keys)
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
