//! Joins conditions with acknowledgements.
//!
//! **Invariant:** pure. Programmed=True only where both data paths said so of the revision in question.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::names::{kind, reason};
use super::{
    Applied, Condition, ConditionStatus, ObjectStatus, ParentKind, Scope, ScopeStatus, Served, StatusList,
};
use crate::snapshot::{ListenerKey, Revision};

/// How the proxy says that it keeps a port closed, so that the kernel refuses clients. That is in force as configured.
const CLOSED: &str = "closed";

/// Whether both data paths have spoken of `revision`. Until then [`join`] says Pending; a caller that waits for this,
/// with a deadline, shows no condition that flaps.
pub fn acknowledged(revision: Revision, proxy: &Applied, kernel: Option<&Applied>) -> bool {
    proxy.revision >= revision && kernel.is_none_or(|kernel| kernel.revision >= revision)
}

/// `statuses` as the user sees them: Programmed follows from what `proxy` and, where there is one, `kernel` said of the
/// snapshot of `revision`, which was published with these statuses. A port that cannot be had takes Accepted back, as
/// the spec wants it.
pub fn join(
    statuses: &StatusList,
    revision: Revision,
    proxy: &Applied,
    kernel: Option<&Applied>,
) -> StatusList {
    let is_current = acknowledged(revision, proxy, kernel);
    let view = DataPaths { is_current, proxy, kernel };
    // Routes and policies, which are many, owe nothing to the data paths.
    let parents = PARENTS.into_iter().flat_map(|kind| statuses.of_kind(kind));
    let join = |status: &Arc<ObjectStatus>| {
        ((status.kind, status.name.clone()), Some(Arc::new(join_one(status, &view))))
    };
    let changes = parents.map(join).collect();
    let mut joined = statuses.clone();
    joined.apply(changes);
    joined
}

const PARENTS: [&str; 2] = [ParentKind::Gateway.as_str(), ParentKind::ListenerSet.as_str()];

#[derive(Debug)]
struct DataPaths<'a> {
    is_current: bool,
    proxy: &'a Applied,
    kernel: Option<&'a Applied>,
}

fn join_one(status: &ObjectStatus, paths: &DataPaths<'_>) -> ObjectStatus {
    let is_set = status.kind == ParentKind::ListenerSet.as_str();
    let mut scopes = status.scopes.to_vec();
    let mut listeners = Vec::new();
    let is_gateway_accepted =
        scopes.iter().filter(|scope| scope.scope == Scope::Object).all(|scope| !is_refused(scope));
    for scope in &mut scopes {
        if let Scope::Listener(section) = &scope.scope {
            let section = section.clone();
            join_listener(scope, is_gateway_accepted, is_set, paths);
            listeners.push((section, scope.clone()));
        }
    }
    for scope in &mut scopes {
        if scope.scope == Scope::Object {
            if is_set { join_set(scope, &listeners) } else { join_gateway(scope, &listeners) }
        }
        let position = |condition: &Condition| kind::ORDER.iter().position(|kind| *kind == condition.kind);
        scope.conditions.sort_by_key(|condition| position(condition).unwrap_or(kind::ORDER.len()));
    }
    ObjectStatus { scopes: scopes.into(), ..status.clone() }
}

fn is_false(scope: &ScopeStatus, kind: &str) -> bool {
    scope.condition(kind).is_some_and(|condition| condition.status == ConditionStatus::False)
}

/// Whether a Gateway is refused for a reason of its own: listeners that are not valid leave the others in place.
fn is_refused(scope: &ScopeStatus) -> bool {
    let accepted = scope.condition(kind::ACCEPTED);
    accepted.is_some_and(|accepted| {
        accepted.status == ConditionStatus::False && accepted.reason != reason::LISTENERS_NOT_VALID
    })
}

/// `is_set`: it is an entry of a ListenerSet, whose reasons are more telling.
fn join_listener(scope: &mut ScopeStatus, is_gateway_accepted: bool, is_set: bool, paths: &DataPaths<'_>) {
    let programmed =
        |is_true, reason, message: String| Condition::new(kind::PROGRAMMED, is_true, reason, message);
    if is_false(scope, kind::ACCEPTED) {
        let conflict = scope.condition(kind::CONFLICTED).filter(|_| is_set);
        let conflict = conflict.filter(|conflict| conflict.status == ConditionStatus::True);
        let reason = conflict.map_or(reason::INVALID, |conflict| conflict.reason);
        scope.set(programmed(false, reason, "the listener is not accepted".into()));
        return;
    }
    // Translation has said why it cannot be.
    if scope.condition(kind::PROGRAMMED).is_some() {
        return;
    }
    let keys = scope.keys().to_vec();
    if keys.is_empty() {
        let why = if is_gateway_accepted {
            "the Gateway has no usable address"
        } else {
            "the Gateway is not accepted"
        };
        scope.set(programmed(false, reason::INVALID, why.into()));
        return;
    }
    let mut served = Vec::new();
    let mut is_pending = false;
    for key in keys {
        match serving(key, paths) {
            Serving::By(text) => served.push(format!("{key} {text}")),
            Serving::Pending => is_pending = true,
            Serving::Failed { reason: failure, message } => {
                let mut reason = reason::INVALID;
                if failure == reason::PORT_UNAVAILABLE {
                    let refused =
                        Condition::new(kind::ACCEPTED, false, reason::PORT_UNAVAILABLE, message.clone());
                    scope.set(refused);
                    if let Some(facts) = &mut scope.listener {
                        facts.is_valid = false;
                    }
                    if is_set {
                        reason = reason::PORT_UNAVAILABLE;
                    }
                }
                scope.set(programmed(false, reason, message));
                return;
            }
        }
    }
    if is_pending {
        scope.set(programmed(false, reason::PENDING, "the data path has not acknowledged it yet".into()));
    } else {
        scope.set(programmed(true, reason::PROGRAMMED, served.join(", ")));
    }
}

enum Serving {
    By(String),
    Pending,
    Failed { reason: &'static str, message: String },
}

/// How an entry is served. Both data paths must have spoken of this revision, the proxy of this entry: it stands
/// behind every listener. The kernel path is silent about what is none of its business.
fn serving(key: ListenerKey, paths: &DataPaths<'_>) -> Serving {
    let relay = match paths.proxy.listeners.get(&key) {
        Some(Served::Failed { reason, message }) => {
            return Serving::Failed { reason, message: message.clone() };
        }
        Some(Served::By(CLOSED)) => Some("is closed: no endpoint is usable".to_owned()),
        Some(Served::By(mechanism)) => Some(format!("by {mechanism}")),
        Some(Served::Left(reason)) => Some(format!("is left out: {reason}")),
        None => None,
    };
    let kernel = paths.kernel.and_then(|kernel| kernel.listeners.get(&key));
    if let Some(Served::Failed { reason, message }) = kernel {
        return Serving::Failed { reason, message: message.clone() };
    }
    let (true, Some(relay)) = (paths.is_current, relay) else {
        return Serving::Pending;
    };
    Serving::By(match kernel {
        Some(Served::By(mechanism)) => format!("by {mechanism}, relay {relay}"),
        Some(Served::Left(reason)) => format!("{relay} ({reason})"),
        Some(Served::Failed { .. }) | None => relay,
    })
}

fn join_gateway(scope: &mut ScopeStatus, listeners: &[(String, ScopeStatus)]) {
    let sections = |wanted: &dyn Fn(&ScopeStatus) -> bool| -> Vec<&str> {
        listeners.iter().filter(|(_, scope)| wanted(scope)).map(|(section, _)| section.as_str()).collect()
    };
    let programmed =
        |is_true, reason, message: String| Condition::new(kind::PROGRAMMED, is_true, reason, message);
    let refused = sections(&|listener| is_false(listener, kind::ACCEPTED));
    if is_refused(scope) {
        scope.set(programmed(false, reason::INVALID, "the Gateway is not accepted".into()));
        return;
    }
    if let Some(accepted) = scope.condition(kind::ACCEPTED) {
        // Translation's note is behind the first semicolon.
        let note = accepted.message.split_once("; ").map_or("", |(_, note)| note).to_owned();
        scope.set(gateway_accepted(listeners.len(), &refused, &note));
    }
    if scope.condition(kind::PROGRAMMED).is_some() {
        return;
    }
    let unserved = sections(&|listener| is_false(listener, kind::PROGRAMMED));
    let pending = sections(&|listener| {
        listener.condition(kind::PROGRAMMED).is_some_and(|condition| condition.reason == reason::PENDING)
    });
    scope.set(if !pending.is_empty() {
        programmed(false, reason::PENDING, format!("waiting for the data path: {}", pending.join(", ")))
    } else if unserved.len() == listeners.len() {
        programmed(false, reason::INVALID, "no listener is served".into())
    } else if unserved.is_empty() {
        programmed(true, reason::PROGRAMMED, "every listener is served".into())
    } else {
        programmed(true, reason::PROGRAMMED, format!("served, except: {}", unserved.join(", ")))
    });
}

fn join_set(scope: &mut ScopeStatus, listeners: &[(String, ScopeStatus)]) {
    if is_refused(scope) {
        return;
    }
    let sections = |wanted: &dyn Fn(&ScopeStatus) -> bool| -> Vec<&str> {
        listeners.iter().filter(|(_, scope)| wanted(scope)).map(|(section, _)| section.as_str()).collect()
    };
    let invalid = sections(&|listener| listener.listener().is_some_and(|facts| !facts.is_valid));
    scope.set(listener_set_accepted(listeners.len(), &invalid));
    if scope.condition(kind::PROGRAMMED).is_some() {
        return;
    }
    let is_programmed = |listener: &ScopeStatus| !is_false(listener, kind::PROGRAMMED);
    let pending = sections(&|listener| {
        listener.condition(kind::PROGRAMMED).is_some_and(|condition| condition.reason == reason::PENDING)
    });
    let (is_true, reason, message) = if !pending.is_empty() {
        (false, reason::PENDING, format!("waiting for the data path: {}", pending.join(", ")))
    } else if invalid.len() == listeners.len() {
        (false, reason::LISTENERS_NOT_VALID, "no listener is valid".to_owned())
    } else if sections(&is_programmed).is_empty() {
        (false, reason::INVALID, "no listener is served".to_owned())
    } else {
        match sections(&|listener| !is_programmed(listener)).as_slice() {
            [] => (true, reason::PROGRAMMED, "every listener is served".to_owned()),
            unserved => (true, reason::PROGRAMMED, format!("served, except: {}", unserved.join(", "))),
        }
    };
    scope.set(Condition::new(kind::PROGRAMMED, is_true, reason, message));
}

/// A ListenerSet's Accepted where only its listeners can keep it from being accepted: `invalid` of `n_listeners` are.
pub fn listener_set_accepted(n_listeners: usize, invalid: &[&str]) -> Condition {
    let (is_true, reason, message) = if invalid.is_empty() {
        (true, reason::ACCEPTED, "the ListenerSet is valid".to_owned())
    } else {
        let message = format!("listeners not valid: {}", invalid.join(", "));
        (invalid.len() < n_listeners, reason::LISTENERS_NOT_VALID, message)
    };
    Condition::new(kind::ACCEPTED, is_true, reason, message)
}

/// A Gateway's Accepted where only its listeners can keep it from being accepted: `refused` of `n_listeners` are.
pub fn gateway_accepted(n_listeners: usize, refused: &[&str], note: &str) -> Condition {
    let (is_true, reason, mut message) = if refused.is_empty() {
        (true, reason::ACCEPTED, "the Gateway is valid".to_owned())
    } else {
        let message = format!("listeners not valid: {}", refused.join(", "));
        (refused.len() < n_listeners, reason::LISTENERS_NOT_VALID, message)
    };
    if !note.is_empty() {
        message.push_str("; ");
        message.push_str(note);
    }
    Condition::new(kind::ACCEPTED, is_true, reason, message)
}
