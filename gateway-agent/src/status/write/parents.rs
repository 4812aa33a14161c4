//! Whose a parent is: the line between several agents that write to one route.
//!
//! Two agents may carry the same controllerName, so an entry's controllerName alone does not say that it is ours. An entry
//! belongs to the agent that the Gateway belongs to: its class is one of the agent's, its namespace is one that the agent
//! watches, and among agents for whom both hold, the one with the Lease of that namespace and class writes.
//!
//! **Invariant:** pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::snapshot::ObjectName;
use crate::status::{ObjectStatus, Parent, ParentKind, Scope};
use crate::store::Store;
use crate::store::objects::{GATEWAY_GROUP, Gateway, ListenerSet};
use crate::translate::{Config, Watched};

/// What an agent may do with the entries of one parent that carry its controllerName.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It writes them.
    Ours,
    /// It takes them away: the parent does not exist, or has just been given to another class.
    Gone,
    /// It leaves them alone: another agent's, in a namespace that is not watched, or somebody else leads now.
    Foreign,
}

/// For which Gateways this replica is the one that writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Leading {
    #[default]
    Nothing,
    /// Namespaces and classes whose Lease it holds.
    Of(BTreeSet<(Arc<str>, Arc<str>)>),
    /// Classes whose one Lease for all namespaces it holds.
    Classes(BTreeSet<Arc<str>>),
}

impl Leading {
    fn leads(&self, namespace: &Arc<str>, class: &Arc<str>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Of(leases) => leases.contains(&(namespace.clone(), class.clone())),
            Self::Classes(classes) => classes.contains(class),
        }
    }
}

/// Every parent that exists where the agent watches, and which of them are its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parents {
    classes: Vec<Arc<str>>,
    watched: Watched,
    /// `--gateway`: no other is ours.
    only: Option<ObjectName>,
    gateways: BTreeMap<ObjectName, ParentGateway>,
    /// By name, with the Gateway that each belongs to.
    listener_sets: BTreeMap<ObjectName, ObjectName>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ParentGateway {
    class: Arc<str>,
    is_ours: bool,
}

fn gateway_of(set: &ListenerSet) -> ObjectName {
    let namespace = set.parent.namespace.as_ref().unwrap_or(&set.meta.name.namespace).clone();
    ObjectName::new(namespace, set.parent.name.clone())
}

/// What a scope of a route's or policy's status speaks of.
pub(super) fn of_scope(scope: &Scope) -> Option<Parent> {
    match scope {
        Scope::Parent { parent, .. } => Some(parent.clone()),
        Scope::Ancestor { gateway } => Some(Parent { kind: ParentKind::Gateway, name: gateway.clone() }),
        Scope::Object | Scope::Listener(_) => None,
    }
}

/// The object itself, where it is one that others attach to.
pub(in crate::status) fn of_object(status: &ObjectStatus) -> Option<Parent> {
    let kinds = [ParentKind::Gateway, ParentKind::ListenerSet];
    let kind = kinds.into_iter().find(|kind| kind.as_str() == status.kind)?;
    Some(Parent { kind, name: status.name.clone() })
}

/// What a `parentRef` or `ancestorRef` in an object of `namespace` names. `None`: nothing that can be ours, such as a
/// Service of a mesh.
pub(super) fn of_reference(reference: &Value, namespace: &Arc<str>) -> Option<Parent> {
    let text = |field| reference.get(field).and_then(Value::as_str);
    let name = text("name")?;
    let kind = match (text("group").unwrap_or(GATEWAY_GROUP), text("kind").unwrap_or("Gateway")) {
        (GATEWAY_GROUP, "Gateway") => ParentKind::Gateway,
        (GATEWAY_GROUP, "ListenerSet") => ParentKind::ListenerSet,
        _ => return None,
    };
    let namespace = text("namespace").map_or_else(|| namespace.clone(), Into::into);
    Some(Parent { kind, name: ObjectName::new(namespace, name) })
}

impl Parents {
    pub fn new(store: &Store, config: &Config) -> Self {
        let gateway = |gateway: &Arc<Gateway>| {
            let known = ParentGateway { class: gateway.class.clone(), is_ours: config.owns(gateway) };
            (gateway.meta.name.clone(), known)
        };
        Self {
            classes: config.gateway_class_names.iter().map(|class| Arc::from(&**class)).collect(),
            watched: config.watched.clone(),
            only: config.gateway.clone(),
            gateways: store.gateways().values().map(|entry| gateway(&entry.object)).collect(),
            listener_sets: store
                .listener_sets()
                .values()
                .map(|entry| (entry.object.meta.name.clone(), gateway_of(&entry.object)))
                .collect(),
        }
    }

    /// What may be done by a replica that is `leading`.
    pub fn standing(&self, parent: &Parent, leading: &Leading) -> Standing {
        let Some(gateway) = self.gateway_of(parent) else {
            return self.nobodys(&parent.name, leading);
        };
        match self.gateways.get(gateway) {
            Some(ParentGateway { class, is_ours: true }) if leading.leads(&gateway.namespace, class) => {
                Standing::Ours
            }
            Some(_) => Standing::Foreign,
            None => self.nobodys(gateway, leading),
        }
    }

    /// What may be done with the object itself.
    pub fn standing_of(&self, status: &ObjectStatus, leading: &Leading) -> Standing {
        of_object(status).map_or(Standing::Foreign, |object| self.standing(&object, leading))
    }

    /// Whether a replica that is `leading` speaks for the agent in `namespace` in what is of no class. Of several classes
    /// it needs all Leases, since one cannot know which of them it was.
    pub fn speaks_for(&self, namespace: &Arc<str>, leading: &Leading) -> bool {
        self.watched.contains(namespace)
            && !self.classes.is_empty()
            && self.classes.iter().all(|class| leading.leads(namespace, class))
    }

    /// The same of a parent that was ours and is not any more.
    pub(in crate::status) fn released(&self, parent: &Parent, leading: &Leading) -> Standing {
        match self.standing(parent, leading) {
            Standing::Foreign => self.nobodys(&parent.name, leading),
            standing => standing,
        }
    }

    /// The parents that `old` has an entry for and `new` has not because they belong to others now.
    pub(in crate::status) fn released_by(&self, old: &ObjectStatus, new: &ObjectStatus) -> Vec<Parent> {
        let parents = |status: &ObjectStatus| -> Vec<Parent> {
            status.scopes.iter().filter_map(|scope| of_scope(&scope.scope)).collect()
        };
        let kept = parents(new);
        let mut released = parents(old);
        released.retain(|parent| {
            let gateway = self.gateway_of(parent).and_then(|gateway| self.gateways.get(gateway));
            !kept.contains(parent) && gateway.is_some_and(|gateway| !gateway.is_ours)
        });
        released
    }

    fn gateway_of<'a>(&'a self, parent: &'a Parent) -> Option<&'a ObjectName> {
        match parent.kind {
            ParentKind::Gateway => Some(&parent.name),
            ParentKind::ListenerSet => self.listener_sets.get(&parent.name),
        }
    }

    /// What nobody has any more, whoever speaks for the agent in its namespace clears up.
    fn nobodys(&self, parent: &ObjectName, leading: &Leading) -> Standing {
        let can_be_ours = self.only.as_ref().is_none_or(|only| only == parent);
        let speaks = can_be_ours && self.speaks_for(&parent.namespace, leading);
        if speaks { Standing::Gone } else { Standing::Foreign }
    }
}
