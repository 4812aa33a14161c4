//! Attachment of routes to listeners.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::conditions::{self, Problem, RouteVerdict};
use super::hostname::{Pattern, intersect};
use super::listener::ListenerPlan;
use crate::snapshot::{ObjectName, RouteKind};
use crate::status::names::reason;
use crate::status::{ObjectStatus, Parent, ParentKind, Scope, ScopeStatus};
use crate::store::Store;
use crate::store::objects::{GATEWAY_GROUP, Meta, ParentRef};

/// What attachment reads of a route, whatever its kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteFacts<'a> {
    pub(super) kind: RouteKind,
    pub(super) meta: &'a Meta,
    pub(super) parents: &'a [ParentRef],
    pub(super) hostnames: &'a [Arc<str>],
}

/// Names that a route serves at a listener, and the route's own hostname that they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) effective: Pattern,
    pub(super) original: Pattern,
}

/// The listeners that routes can attach to.
#[derive(Debug)]
pub(super) struct Targets<'a> {
    pub(super) store: &'a Store,
    pub(super) listeners: &'a [ListenerPlan],
    /// Positions in `listeners`, by Gateway of ours.
    pub(super) of_gateway: HashMap<&'a ObjectName, std::ops::Range<usize>>,
}

/// Where one route is attached: positions in [`Targets::listeners`], none twice.
pub(super) type Attachments = BTreeMap<usize, Vec<Host>>;

/// A route's status and where it is attached. Parents that are not ours have no entry.
pub(super) fn attach(
    route: RouteFacts<'_>,
    verdict: &RouteVerdict,
    targets: &Targets<'_>,
) -> (ObjectStatus, Attachments) {
    let mut attachments = Attachments::new();
    let mut scopes = Vec::new();
    for (index, reference) in route.parents.iter().enumerate() {
        let Some((gateway, candidates)) = target(route, reference, targets) else {
            continue;
        };
        let accepted = match attach_to(route, reference, candidates, targets) {
            Err(problem) => Err(problem),
            Ok(found) => match &verdict.unusable {
                Some(problem) => Err(problem.clone()),
                None => {
                    let mut message = accepted_message(&found, targets);
                    if let Some(note) = &verdict.note {
                        message.push_str(&format!("; {note}"));
                    }
                    attachments.extend(found);
                    Ok(message)
                }
            },
        };
        let parent = Parent { kind: ParentKind::Gateway, name: gateway };
        let scope = Scope::Parent { index, parent, reference: reference.clone() };
        scopes.push(ScopeStatus::new(scope, conditions::parent(&accepted, verdict)));
    }
    let status = ObjectStatus {
        kind: route.kind.as_str(),
        name: route.meta.name.clone(),
        observed_generation: route.meta.generation,
        addresses: Vec::new(),
        attached_listener_sets: None,
        scopes,
    };
    (status, attachments)
}

/// The Gateway of ours that `parent` names.
fn target(
    route: RouteFacts<'_>,
    parent: &ParentRef,
    targets: &Targets<'_>,
) -> Option<(ObjectName, std::ops::Range<usize>)> {
    let is_gateway = parent.group.as_deref().unwrap_or(GATEWAY_GROUP) == GATEWAY_GROUP
        && parent.kind.as_deref().unwrap_or("Gateway") == "Gateway";
    if !is_gateway {
        return None;
    }
    let namespace = parent.namespace.as_ref().unwrap_or(&route.meta.name.namespace).clone();
    let gateway = ObjectName { namespace, name: parent.name.clone() };
    let listeners = targets.of_gateway.get(&gateway)?.clone();
    Some((gateway, listeners))
}

/// The listeners that one parentRef attaches to, or why there is none. Whether a listener is itself accepted does not
/// matter (`ListenerStatus.attachedRoutes`).
fn attach_to(
    route: RouteFacts<'_>,
    parent: &ParentRef,
    candidates: std::ops::Range<usize>,
    targets: &Targets<'_>,
) -> Result<Attachments, Problem> {
    let selected: Vec<usize> = candidates
        .filter(|index| {
            let listener = &targets.listeners[*index];
            let port = listener.spec.port.map(|port| i32::from(port.get()));
            parent.section.as_ref().is_none_or(|section| *section == listener.name.section)
                && parent.port.is_none_or(|wanted| port == Some(wanted))
        })
        .collect();
    if selected.is_empty() {
        return Err(Problem::new(reason::NO_MATCHING_PARENT, no_parent_message(parent)));
    }
    let allowing = allowing(route, selected, targets)?;
    let mut found = Attachments::new();
    for index in allowing {
        let hosts = hosts(&targets.listeners[index].spec.hostname, route.hostnames);
        if !hosts.is_empty() {
            found.insert(index, hosts);
        }
    }
    if found.is_empty() {
        let message = "no hostname of the route intersects with a hostname of the listeners";
        return Err(Problem::new(reason::NO_MATCHING_LISTENER_HOSTNAME, message));
    }
    Ok(found)
}

/// Of the listeners that a parentRef selects, those that allow the route's kind and namespace.
fn allowing(
    route: RouteFacts<'_>,
    selected: Vec<usize>,
    targets: &Targets<'_>,
) -> Result<Vec<usize>, Problem> {
    let refuse = |message: String| Err(Problem::new(reason::NOT_ALLOWED_BY_LISTENERS, message));
    let names = |of: &[usize]| -> String {
        let names: Vec<&str> = of.iter().map(|index| &*targets.listeners[*index].name.section).collect();
        names.join(", ")
    };
    let (of_kind, others): (Vec<usize>, Vec<usize>) =
        selected.into_iter().partition(|index| targets.listeners[*index].kinds.contains(&route.kind));
    if of_kind.is_empty() {
        return refuse(format!("{}s cannot attach to: {}", route.kind.as_str(), names(&others)));
    }
    let namespace = &route.meta.name.namespace;
    let (allowing, others): (Vec<usize>, Vec<usize>) = of_kind
        .into_iter()
        .partition(|index| targets.listeners[*index].allows_namespace(namespace, targets.store));
    if allowing.is_empty() {
        return refuse(format!("routes of namespace {namespace} are not allowed at: {}", names(&others)));
    }
    Ok(allowing)
}

fn no_parent_message(parent: &ParentRef) -> String {
    match (&parent.section, parent.port) {
        (Some(section), Some(port)) => format!("no listener is named {section} and has port {port}"),
        (Some(section), None) => format!("no listener is named {section}"),
        (None, Some(port)) => format!("no listener has port {port}"),
        (None, None) => "the Gateway has no listeners".into(),
    }
}

/// The intersections of the listener's hostname with the route's. A route without hostnames takes the listener's.
fn hosts(listener: &Pattern, route: &[Arc<str>]) -> Vec<Host> {
    if route.is_empty() {
        return vec![Host { effective: listener.clone(), original: None }];
    }
    let meet = |original: &Arc<str>| {
        let original = Some(original.clone());
        intersect(listener, &original).map(|effective| Host { effective, original })
    };
    route.iter().filter_map(meet).collect()
}

fn accepted_message(found: &Attachments, targets: &Targets<'_>) -> String {
    let listeners = || found.keys().map(|index| &targets.listeners[*index]);
    let names: Vec<&str> = listeners().map(|listener| &*listener.name.section).collect();
    let refused: Vec<String> = listeners()
        .filter_map(|listener| Some(format!("{}: {}", listener.name.section, listener.refusal()?.reason)))
        .collect();
    let mut message = format!("attached to {}", names.join(", "));
    if !refused.is_empty() {
        message.push_str(&format!("; not served ({})", refused.join(", ")));
    }
    message
}
