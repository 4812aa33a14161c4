//! Gateways, ListenerSets and their listeners: all that routes attach to, made as a whole.
//!
//! There are few of these and they depend on each other, through ports, ages and names. So they are planned anew
//! whenever one of their inputs changes; what of them has changed is then told by comparison.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use super::Config;
use super::certificates::Certificates;
use super::conditions;
use super::frontend;
use super::gateway::{self, GatewayPlan};
use super::inputs::Inputs;
use super::listener::{ListenerPlan, Planner};
use super::listener_set::{self, SetPlan};
use super::provision;
use crate::api::{Kind, ObjectId};
use crate::provision::Wanted;
use crate::provision::targets::PortKey;
use crate::snapshot::{ListenerName, ObjectName};
use crate::status::names::kind;
use crate::status::{
    Condition, GatewayFacts, ObjectStatus, Parent, ParentKind, Scope, ScopeStatus, listener_set_accepted,
};
use crate::store::Store;

#[derive(Debug, Default)]
pub(super) struct Topology {
    pub(super) gateways: Vec<GatewayPlan>,
    pub(super) sets: Vec<SetPlan>,
    /// Each Gateway's own, then those of its sets.
    pub(super) listeners: Vec<ListenerPlan>,
    /// The Gateways' own conditions about `spec.tls`, by position.
    tls_conditions: Vec<Vec<Condition>>,
    parents: HashMap<Parent, Owner>,
    /// The listeners where TLS ends.
    terminating: HashSet<ListenerName>,
    /// What was looked up by name, and the Services that agents made for Gateways.
    reads: BTreeSet<ObjectId>,
}

/// An object of ours that routes may name as their parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// Position among the Gateways or among the sets.
    position: usize,
    /// Positions of its listeners.
    pub(super) listeners: Range<usize>,
}

pub(super) fn plan(store: &Store, config: &Config, certificates: &mut Certificates) -> Topology {
    let inputs = Inputs::new(store);
    let gateways = gateway::plan(&inputs, config);
    let mut sets_of = listener_set::plan(store, &gateways, config);
    let mut topology = Topology::default();
    let mut planner = Planner::new(&inputs, config, certificates);
    for (position, gateway) in gateways.iter().enumerate() {
        let mut sets = sets_of.remove(gateway.name()).unwrap_or_default();
        let listeners = planner.add(gateway, &mut sets);
        let parent = Parent { kind: ParentKind::Gateway, name: gateway.name().clone() };
        topology.parents.insert(parent, Owner { position, listeners });
        for set in sets {
            let parent = Parent { kind: ParentKind::ListenerSet, name: set.name().clone() };
            let owner = Owner { position: topology.sets.len(), listeners: set.listeners.clone() };
            topology.parents.insert(parent, owner);
            topology.sets.push(set);
        }
    }
    topology.listeners = planner.finish();
    let terminating = topology.listeners.iter().filter(|listener| listener.spec.protocol.terminates_tls());
    topology.terminating = terminating.map(|listener| listener.name.clone()).collect();
    let tls =
        |gateway: &GatewayPlan| frontend::gateway_conditions(&gateway.gateway, certificates, &inputs, config);
    topology.tls_conditions = gateways.iter().map(tls).collect();
    topology.gateways = gateways;
    certificates.sweep();
    topology.reads = inputs.into_reads();
    let managed = store.managed_services().map(|(name, ..)| name.clone());
    topology.reads.extend(managed.map(|name| ObjectId { kind: Kind::Service, name }));
    topology
}

impl Topology {
    pub(super) fn owner(&self, parent: &Parent) -> Option<&Owner> {
        self.parents.get(parent)
    }

    pub(super) fn parents(&self) -> impl Iterator<Item = &Parent> {
        self.parents.keys()
    }

    pub(super) fn listeners_of(&self, owner: &Owner) -> &[ListenerPlan] {
        self.listeners.get(owner.listeners.clone()).unwrap_or_default()
    }

    /// Whether TLS ends at the listener.
    pub(super) fn terminates(&self, name: &ListenerName) -> bool {
        self.terminating.contains(name)
    }

    /// What is to be written for the Gateways beside their status.
    pub(super) fn provisions(&self, store: &Store, config: &Config) -> Vec<Wanted> {
        // Also of listeners that are not accepted, so that a port does not come and go with them.
        let mut ports: HashMap<&ObjectName, BTreeSet<PortKey>> = HashMap::new();
        for listener in &self.listeners {
            ports.entry(&listener.name.gateway).or_default().extend(listener.port());
        }
        provision::plan(&self.gateways, &ports, store, config)
    }

    /// Whether what is to be written may be otherwise after a change of this object; `wanted` is what it was before.
    pub(super) fn provisions_read(
        &self,
        id: &ObjectId,
        wanted: &[Wanted],
        store: &Store,
        config: &Config,
    ) -> bool {
        let is_of_gateway =
            |gateway: &GatewayPlan| gateway.service.as_ref().is_some_and(|place| place.name == id.name);
        matches!(id.kind, Kind::EndpointSlice | Kind::Service)
            && (store.is_managed(id)
                || wanted.iter().any(|wanted| *wanted.change.name() == id.name)
                || config.own_pod.replicas().is_some_and(|service| service == id.name)
                || self.gateways.iter().any(is_of_gateway))
    }

    /// Whether it would come out differently after a change of this object.
    pub(super) fn has_read(&self, id: &ObjectId) -> bool {
        self.reads.contains(id)
    }

    /// The parents at which routes may attach otherwise than at those of `other`.
    pub(super) fn differences(&self, other: &Self) -> Vec<Parent> {
        let parents =
            self.parents.keys().chain(other.parents.keys().filter(|one| !self.parents.contains_key(one)));
        let differs = |parent: &&Parent| match (self.owner(parent), other.owner(parent)) {
            (Some(one), Some(two)) => self.listeners_of(one) != other.listeners_of(two),
            _ => true,
        };
        parents.filter(differs).cloned().collect()
    }

    /// The status of a Gateway or ListenerSet. `attached` counts the routes of a listener.
    pub(super) fn status(
        &self,
        parent: &Parent,
        attached: impl Fn(&ListenerName) -> usize,
    ) -> Option<ObjectStatus> {
        let owner = self.owner(parent)?;
        match parent.kind {
            ParentKind::Gateway => self.gateway_status(owner, attached),
            ParentKind::ListenerSet => self.set_status(owner, attached),
        }
    }

    fn gateway_status(
        &self,
        owner: &Owner,
        attached: impl Fn(&ListenerName) -> usize,
    ) -> Option<ObjectStatus> {
        let plan = self.gateways.get(owner.position)?;
        let listeners = self.listeners_of(owner);
        let refused = sections(listeners, |listener| !listener.is_accepted());
        let mut conditions =
            vec![conditions::gateway(plan.problem.as_ref(), listeners.len(), &refused, &plan.note())];
        if let Some(unusable) = &plan.unusable {
            let message = unusable.message.clone();
            conditions.push(Condition::new(kind::PROGRAMMED, false, unusable.reason, message));
        }
        conditions.extend(self.tls_conditions.get(owner.position).into_iter().flatten().cloned());
        let attached_sets = self.sets.iter().filter(|set| set.gateway == *plan.name());
        let facts = GatewayFacts {
            addresses: plan.addresses.clone(),
            attached_listener_sets: attached_sets.filter(|set| self.is_attached(set)).count(),
        };
        Some(ObjectStatus {
            kind: ParentKind::Gateway.as_str(),
            name: plan.name().clone(),
            observed_generation: plan.gateway.meta.generation,
            gateway: Some(Box::new(facts)),
            scopes: scopes(conditions, listeners, attached).into(),
        })
    }

    /// Whether a set is accepted.
    fn is_attached(&self, set: &SetPlan) -> bool {
        let listeners = self.listeners.get(set.listeners.clone()).unwrap_or_default();
        set.refusal.is_none() && listeners.iter().any(ListenerPlan::is_valid)
    }

    fn set_status(&self, owner: &Owner, attached: impl Fn(&ListenerName) -> usize) -> Option<ObjectStatus> {
        let plan = self.sets.get(owner.position)?;
        let listeners = self.listeners_of(owner);
        let accepted = match &plan.refusal {
            Some(refusal) => Condition::new(kind::ACCEPTED, false, refusal.reason, refusal.message.clone()),
            None => {
                let refused = sections(listeners, |listener| !listener.is_valid());
                listener_set_accepted(listeners.len(), &refused)
            }
        };
        let mut conditions = vec![accepted];
        if let Some(unserved) = &plan.unserved {
            let message = unserved.message.clone();
            conditions.push(Condition::new(kind::PROGRAMMED, false, unserved.reason, message));
        }
        let kind = ParentKind::ListenerSet.as_str();
        let scopes = scopes(conditions, listeners, attached);
        Some(ObjectStatus::new(kind, plan.name().clone(), plan.set.meta.generation, scopes))
    }
}

fn sections(listeners: &[ListenerPlan], wanted: impl Fn(&ListenerPlan) -> bool) -> Vec<&str> {
    listeners.iter().filter(|listener| wanted(listener)).map(|listener| &*listener.name.section).collect()
}

fn scopes(
    conditions: Vec<Condition>,
    listeners: &[ListenerPlan],
    attached: impl Fn(&ListenerName) -> usize,
) -> Vec<ScopeStatus> {
    let object = ScopeStatus::new(Scope::Object, conditions);
    let listeners = listeners.iter().map(|listener| listener.status(attached(&listener.name)));
    std::iter::once(object).chain(listeners).collect()
}
