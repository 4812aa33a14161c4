//! ListenerSets: which of them belong to a Gateway of ours, in which order, and whether the Gateway lets them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::Config;
use super::conditions::Problem;
use super::gateway::GatewayPlan;
use super::listener;
use crate::snapshot::ObjectName;
use crate::status::names::reason;
use crate::store::Store;
use crate::store::objects::{GATEWAY_GROUP, ListenerSet, ListenerSetFilter};

/// A ListenerSet whose parent is a Gateway of ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SetPlan {
    pub(super) set: Arc<ListenerSet>,
    pub(super) gateway: ObjectName,
    /// Accepted=False whatever its listeners are.
    pub(super) refusal: Option<Problem>,
    /// Programmed=False with it, or though it is accepted.
    pub(super) unserved: Option<Problem>,
    /// Positions among all listeners; empty where the Gateway does not allow the set.
    pub(super) listeners: Range<usize>,
}

impl SetPlan {
    pub(super) fn name(&self) -> &ObjectName {
        &self.set.meta.name
    }

    pub(super) fn is_allowed(&self) -> bool {
        self.refusal.as_ref().is_none_or(|refusal| refusal.reason != reason::NOT_ALLOWED)
    }
}

/// ListenerSets by Gateway, each Gateway's in the order in which they count: the oldest first, then by name.
pub(super) fn plan(
    store: &Store,
    gateways: &[GatewayPlan],
    config: &Config,
) -> HashMap<ObjectName, Vec<SetPlan>> {
    let by_name: HashMap<&ObjectName, &GatewayPlan> =
        gateways.iter().map(|gateway| (gateway.name(), gateway)).collect();
    let mut plans: HashMap<ObjectName, Vec<SetPlan>> = HashMap::new();
    for entry in store.listener_sets().values() {
        let set = &entry.object;
        if !config.watched.contains(&set.meta.name.namespace) {
            continue;
        }
        let Some(gateway) = parent(set).and_then(|parent| by_name.get(&parent).copied()) else {
            continue;
        };
        let (refusal, unserved) = verdict(set, gateway, store);
        let plan =
            SetPlan { set: set.clone(), gateway: gateway.name().clone(), refusal, unserved, listeners: 0..0 };
        plans.entry(plan.gateway.clone()).or_default().push(plan);
    }
    for plans in plans.values_mut() {
        plans.sort_by(|one, other| one.set.meta.seniority().cmp(&other.set.meta.seniority()));
    }
    plans
}

fn parent(set: &ListenerSet) -> Option<ObjectName> {
    let parent = &set.parent;
    (&*parent.group == GATEWAY_GROUP && &*parent.kind == "Gateway").then(|| {
        ObjectName::new(
            parent.namespace.as_ref().unwrap_or(&set.meta.name.namespace).clone(),
            parent.name.clone(),
        )
    })
}

/// Why it is not accepted, and why it is not programmed.
fn verdict(set: &ListenerSet, gateway: &GatewayPlan, store: &Store) -> (Option<Problem>, Option<Problem>) {
    let namespace = &set.meta.name.namespace;
    let is_allowed = match &gateway.gateway.allowed_listeners {
        ListenerSetFilter::None => false,
        ListenerSetFilter::Some(filter) => {
            listener::selects(filter, &gateway.name().namespace, namespace, store)
        }
    };
    if !is_allowed {
        let message = format!("Gateway {} allows no ListenerSets of namespace {namespace}", gateway.name());
        let refusal = Problem::new(reason::NOT_ALLOWED, message);
        return (Some(refusal.clone()), Some(refusal));
    }
    if gateway.problem.is_some() {
        let message = format!("Gateway {} is not accepted", gateway.name());
        return (
            Some(Problem::new(reason::PARENT_NOT_ACCEPTED, message.clone())),
            Some(Problem::new(reason::PARENT_NOT_PROGRAMMED, message)),
        );
    }
    let unserved = gateway.unusable.as_ref().map(|unusable| {
        let message = format!("Gateway {} is not programmed: {}", gateway.name(), unusable.reason);
        Problem::new(reason::PARENT_NOT_PROGRAMMED, message)
    });
    (None, unserved)
}
