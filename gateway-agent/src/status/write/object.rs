//! The status of Gateways and ListenerSets: conditions, addresses, listeners.
//!
//! **Invariant:** pure. Lists exactly the listeners that are wanted; of what others added to the object and to listeners
//! that stay, nothing is lost.

use std::hash::{Hash as _, Hasher};

use serde_json::{Map, Value, json};

use super::entries::present;
use super::{WantedObject, conditions};
use crate::status::{Address, ScopeStatus};
use crate::store::objects::GATEWAY_GROUP;

/// Changes `status` to say what is wanted. Gives how many conditions found no room.
pub(super) fn merge(status: &mut Value, wanted: &WantedObject<'_>, generation: i64, now: &str) -> usize {
    let Some(status) = status.as_object_mut() else { return 0 };
    let mut unplaced = conditions::merge(status, wanted.conditions, generation, now);
    set_addresses(status, wanted.addresses);
    if let Some(count) = wanted.attached_listener_sets {
        // Zero and absent are the same.
        if count > 0 || status.contains_key("attachedListenerSets") {
            status.insert("attachedListenerSets".into(), json!(count));
        }
    }
    let old = status.get("listeners").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut listeners = Vec::with_capacity(wanted.listeners.len());
    for (name, scope) in &wanted.listeners {
        let is_it = |listener: &&Value| listener.get("name").and_then(Value::as_str) == Some(name);
        let mut listener = old.iter().find(is_it).and_then(Value::as_object).cloned().unwrap_or_default();
        listener.insert("name".into(), (*name).into());
        listener.insert("supportedKinds".into(), kinds(scope));
        listener.insert("attachedRoutes".into(), json!(scope.attached_routes()));
        unplaced += conditions::merge(&mut listener, &scope.conditions, generation, now);
        listeners.push(listener.into());
    }
    if !listeners.is_empty() || status.contains_key("listeners") {
        status.insert("listeners".into(), Value::Array(listeners));
    }
    unplaced
}

fn kinds(scope: &ScopeStatus) -> Value {
    let kind = |kind: &&str| json!({"group": GATEWAY_GROUP, "kind": kind});
    scope.supported_kinds().iter().map(kind).collect()
}

fn set_addresses(status: &mut Map<String, Value>, addresses: &[Address]) {
    let wanted: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"type": address.kind(), "value": address.to_string()}))
        .collect();
    if !wanted.is_empty() || status.contains_key("addresses") {
        status.insert("addresses".into(), wanted.into());
    }
}

/// What [`merge`] would leave of `wanted`; [`hash_present`] does the same for what is there.
pub(super) fn hash_wanted(wanted: &WantedObject<'_>, generation: i64, hasher: &mut impl Hasher) {
    conditions::hash_wanted(wanted.conditions, generation, hasher);
    (wanted.addresses.len(), wanted.listeners.len()).hash(hasher);
    for address in wanted.addresses {
        (address.kind(), &*address.to_string()).hash(hasher);
    }
    wanted.attached_listener_sets.unwrap_or(0).hash(hasher);
    for (name, scope) in &wanted.listeners {
        (name, scope.attached_routes()).hash(hasher);
        scope.supported_kinds().len().hash(hasher);
        for kind in scope.supported_kinds() {
            (GATEWAY_GROUP, *kind).hash(hasher);
        }
        conditions::hash_wanted(&scope.conditions, generation, hasher);
    }
}

pub(super) fn hash_present(status: &Value, hasher: &mut impl Hasher) {
    fn text<'a>(value: &'a Value, field: &str) -> &'a str {
        value.get(field).and_then(Value::as_str).unwrap_or_default()
    }
    let number = |value: &Value, field| {
        let number = value.get(field).and_then(Value::as_u64).unwrap_or(0);
        usize::try_from(number).unwrap_or(usize::MAX)
    };
    conditions::hash_present(status, hasher);
    (present(status, "addresses").len(), present(status, "listeners").len()).hash(hasher);
    for address in present(status, "addresses") {
        (text(address, "type"), text(address, "value")).hash(hasher);
    }
    number(status, "attachedListenerSets").hash(hasher);
    for listener in present(status, "listeners") {
        (text(listener, "name"), number(listener, "attachedRoutes")).hash(hasher);
        present(listener, "supportedKinds").len().hash(hasher);
        for kind in present(listener, "supportedKinds") {
            (text(kind, "group"), text(kind, "kind")).hash(hasher);
        }
        conditions::hash_present(listener, hasher);
    }
}
