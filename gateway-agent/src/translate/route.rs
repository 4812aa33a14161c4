//! Attachment of routes to listeners.

use std::sync::Arc;

use super::conditions::{self, Problem, RouteVerdict};
use super::hostname::{Pattern, intersect};
use super::listener::ListenerPlan;
use super::topology::Topology;
use crate::snapshot::{ListenerName, ObjectName, RouteKind};
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

impl<'a> RouteFacts<'a> {
    /// What its parentRefs name, ours or not; sorted, none twice.
    pub(super) fn parents(self) -> Vec<Parent> {
        let mut parents: Vec<Parent> =
            self.parents.iter().filter_map(|reference| self.parent(reference)).collect();
        parents.sort_unstable();
        parents.dedup();
        parents
    }

    /// `None`: neither a Gateway nor a ListenerSet.
    fn parent(self, reference: &ParentRef) -> Option<Parent> {
        if reference.group.as_deref().unwrap_or(GATEWAY_GROUP) != GATEWAY_GROUP {
            return None;
        }
        let kind = match reference.kind.as_deref() {
            None | Some("Gateway") => ParentKind::Gateway,
            Some("ListenerSet") => ParentKind::ListenerSet,
            Some(_) => return None,
        };
        let namespace = reference.namespace.as_ref().unwrap_or(&self.meta.name.namespace).clone();
        Some(Parent { kind, name: ObjectName::new(namespace, reference.name.clone()) })
    }
}

/// Names that a route serves at a listener, and the route's own hostname that they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) effective: Pattern,
    pub(super) original: Pattern,
}

/// A listener that a route is attached to, and the names that it serves there.
pub(super) type Attachment = (ListenerName, Box<[Host]>);

/// Where one route is attached: in the order of names, none twice. Nearly always one or two.
pub(super) type Attachments = Box<[Attachment]>;

/// A route's status and where it is attached. Parents that are not ours have no entry.
pub(super) fn attach(
    route: RouteFacts<'_>,
    verdict: &RouteVerdict,
    topology: &Topology,
    store: &Store,
) -> (ObjectStatus, Attachments) {
    let mut attachments: Vec<Attachment> = Vec::new();
    let mut scopes = Vec::with_capacity(route.parents.len());
    for (index, reference) in route.parents.iter().enumerate() {
        let Some(parent) = route.parent(reference) else { continue };
        let Some(owner) = topology.owner(&parent) else { continue };
        let candidates = topology.listeners_of(owner);
        let accepted = match attach_to(route, reference, &parent, candidates, store) {
            Err(problem) => Err(problem),
            Ok(found) => match &verdict.unusable {
                Some(problem) => Err(problem.clone()),
                None => {
                    let mut message = accepted_message(&found);
                    if let Some(note) = &verdict.note {
                        message.push_str(&format!("; {note}"));
                    }
                    for (listener, hosts) in found {
                        // Another parentRef may lead there too; what a route serves at a listener is the same.
                        let position = attachments.binary_search_by(|(name, _)| name.cmp(&listener.name));
                        if let Err(position) = position {
                            attachments.insert(position, (listener.name.clone(), hosts));
                        }
                    }
                    Ok(message)
                }
            },
        };
        let (section, port) = (reference.section.clone(), reference.port);
        let scope = Scope::Parent { index, parent, section, port };
        scopes.push(ScopeStatus::new(scope, conditions::parent(&accepted, verdict)));
    }
    let meta = route.meta;
    let status = ObjectStatus::new(route.kind.as_str(), meta.name.clone(), meta.generation, scopes);
    (status, attachments.into())
}

type Found<'a> = Vec<(&'a ListenerPlan, Box<[Host]>)>;

/// The listeners that one parentRef attaches to, or why there is none. Whether a listener is itself accepted does not
/// matter (`ListenerStatus.attachedRoutes`).
fn attach_to<'a>(
    route: RouteFacts<'_>,
    reference: &ParentRef,
    parent: &Parent,
    candidates: &'a [ListenerPlan],
    store: &Store,
) -> Result<Found<'a>, Problem> {
    let selected: Vec<&ListenerPlan> = candidates
        .iter()
        .filter(|listener| {
            let port = listener.spec.port.map(|port| i32::from(port.get()));
            reference.section.as_ref().is_none_or(|section| *section == listener.name.section)
                && reference.port.is_none_or(|wanted| port == Some(wanted))
        })
        .collect();
    if selected.is_empty() {
        return Err(Problem::new(reason::NO_MATCHING_PARENT, no_parent_message(reference, parent)));
    }
    let mut found = Found::new();
    for listener in allowing(route, selected, store)? {
        let hosts = hosts(&listener.spec.hostname, route.hostnames);
        if !hosts.is_empty() {
            found.push((listener, hosts));
        }
    }
    if found.is_empty() {
        let message = "no hostname of the route intersects with a hostname of the listeners";
        return Err(Problem::new(reason::NO_MATCHING_LISTENER_HOSTNAME, message));
    }
    Ok(found)
}

/// Of the listeners that a parentRef selects, those that allow the route's kind and namespace.
fn allowing<'a>(
    route: RouteFacts<'_>,
    selected: Vec<&'a ListenerPlan>,
    store: &Store,
) -> Result<Vec<&'a ListenerPlan>, Problem> {
    let refuse = |message: String| Err(Problem::new(reason::NOT_ALLOWED_BY_LISTENERS, message));
    let names = |of: &[&ListenerPlan]| -> String {
        let names: Vec<&str> = of.iter().map(|listener| &*listener.name.section).collect();
        names.join(", ")
    };
    let (of_kind, others): (Vec<_>, Vec<_>) =
        selected.into_iter().partition(|listener| listener.kinds.contains(&route.kind));
    if of_kind.is_empty() {
        return refuse(format!("{}s cannot attach to: {}", route.kind.as_str(), names(&others)));
    }
    let namespace = &route.meta.name.namespace;
    let (allowing, others): (Vec<_>, Vec<_>) =
        of_kind.into_iter().partition(|listener| listener.allows_namespace(namespace, store));
    if allowing.is_empty() {
        return refuse(format!("routes of namespace {namespace} are not allowed at: {}", names(&others)));
    }
    Ok(allowing)
}

fn no_parent_message(reference: &ParentRef, parent: &Parent) -> String {
    match (&reference.section, reference.port) {
        (Some(section), Some(port)) => format!("no listener is named {section} and has port {port}"),
        (Some(section), None) => format!("no listener is named {section}"),
        (None, Some(port)) => format!("no listener has port {port}"),
        (None, None) => format!("the {} has no listeners", parent.kind.as_str()),
    }
}

/// The intersections of the listener's hostname with the route's. A route without hostnames takes the listener's.
fn hosts(listener: &Pattern, route: &[Arc<str>]) -> Box<[Host]> {
    if route.is_empty() {
        return [Host { effective: listener.clone(), original: None }].into();
    }
    let meet = |original: &Arc<str>| {
        let original = Some(original.clone());
        intersect(listener, &original).map(|effective| Host { effective, original })
    };
    route.iter().filter_map(meet).collect()
}

fn accepted_message(found: &Found<'_>) -> String {
    let names: Vec<&str> = found.iter().map(|(listener, _)| &*listener.name.section).collect();
    let why =
        |listener: &ListenerPlan| Some(format!("{}: {}", listener.name.section, listener.refusal()?.reason));
    let refused: Vec<String> = found.iter().filter_map(|(listener, _)| why(listener)).collect();
    let mut message = format!("attached to {}", names.join(", "));
    if !refused.is_empty() {
        message.push_str(&format!("; not served ({})", refused.join(", ")));
    }
    message
}
