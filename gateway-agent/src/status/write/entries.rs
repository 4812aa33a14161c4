//! `status.parents` and `status.ancestors`: atomic lists with entries of several controllers.
//!
//! **Invariant:** pure. What carries another controllerName, or belongs to another agent of the same one, keeps its value
//! and its place.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::parents::{Standing, of_reference};
use super::{Context, WantedEntries, WantedEntry, conditions};
use crate::snapshot::ObjectName;
use crate::status::ObjectStatus;
use crate::store::objects::GATEWAY_GROUP;

/// The fields of a reference that an entry echoes.
const FIELDS: [&str; 6] = ["group", "kind", "namespace", "name", "sectionName", "port"];

/// Sets the list of entries in `status`. Gives how many entries and conditions found no room.
pub(super) fn merge(
    status: &mut Value,
    current: &Value,
    wanted: &WantedEntries<'_>,
    desired: &ObjectStatus,
    context: &Context<'_>,
) -> usize {
    let list = &wanted.list;
    let namespace = &desired.name.namespace;
    let declared = declared(current);
    // Which references our entries carry, in the spec's words.
    let ours: Vec<(Value, &WantedEntry<'_>)> = wanted
        .entries
        .iter()
        .filter(|entry| (context.standing)(&entry.parent) == Standing::Ours)
        .filter_map(|entry| Some((reference(entry, declared)?, entry)))
        .collect();
    let mut is_placed = vec![false; ours.len()];
    let mut merged = Vec::new();
    let mut unplaced = 0;
    let mut set =
        |old: Option<&Value>, (reference, entry): &(Value, &WantedEntry<'_>), merged: &mut Vec<Value>| {
            let mut object = old.and_then(Value::as_object).cloned().unwrap_or_default();
            object.insert(list.reference.into(), reference.clone());
            object.insert("controllerName".into(), context.controller_name.into());
            unplaced +=
                conditions::merge(&mut object, entry.conditions, desired.observed_generation, context.now);
            merged.push(object.into());
        };
    for entry in present(status, list.field) {
        let old = entry.get(list.reference).unwrap_or(&Value::Null);
        if entry.get("controllerName").and_then(Value::as_str) != Some(context.controller_name) {
            merged.push(entry.clone());
        } else if let Some(index) = find(old, &ours, &is_placed, namespace) {
            is_placed[index] = true;
            set(Some(entry), &ours[index], &mut merged);
        } else if stays(old, namespace, context) {
            merged.push(entry.clone());
        }
    }
    let mut refused = 0;
    for (ours, _) in ours.iter().zip(&is_placed).filter(|(_, is_placed)| !**is_placed) {
        if merged.len() < list.max {
            set(None, ours, &mut merged);
        } else {
            refused += 1;
        }
    }
    if let Some(status) =
        status.as_object_mut().filter(|status| !merged.is_empty() || status.contains_key(list.field))
    {
        status.insert(list.field.into(), merged.into());
    }
    unplaced + refused
}

pub(super) fn present<'a>(status: &'a Value, field: &str) -> &'a [Value] {
    status.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// `spec.parentRefs` as stored.
pub(super) fn declared(object: &Value) -> &[Value] {
    object.pointer("/spec/parentRefs").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The reference of an entry: what is stored in the spec, or for an ancestor the Gateway's full name.
fn reference(entry: &WantedEntry<'_>, declared: &[Value]) -> Option<Value> {
    match entry.index {
        Some(index) => declared.get(index).map(echo),
        None => Some(ancestor(&entry.parent.name)),
    }
}

/// Only the known fields: what is omitted stays omitted.
fn echo(declared: &Value) -> Value {
    let fields = declared.as_object().into_iter().flatten();
    let known = fields.filter(|(field, _)| FIELDS.contains(&field.as_str()));
    known.map(|(field, value)| (field.clone(), value.clone())).collect::<Map<_, _>>().into()
}

pub(super) fn ancestor(gateway: &ObjectName) -> Value {
    let fields = [
        ("group", GATEWAY_GROUP),
        ("kind", "Gateway"),
        ("namespace", &*gateway.namespace),
        ("name", &*gateway.name),
    ];
    fields
        .into_iter()
        .map(|(field, value)| (field.to_owned(), value.into()))
        .collect::<Map<_, Value>>()
        .into()
}

/// Which of `ours` an entry of ours is: by the very reference, else by one of the same meaning in other words.
fn find(
    old: &Value,
    ours: &[(Value, &WantedEntry<'_>)],
    is_placed: &[bool],
    namespace: &Arc<str>,
) -> Option<usize> {
    let free = || ours.iter().enumerate().filter(|(index, _)| !is_placed[*index]);
    let exact = free().find(|(_, (reference, _))| reference == old);
    let meaning = |reference: &Value| {
        let parent = of_reference(reference, namespace)?;
        Some((parent, reference.get("sectionName").cloned(), reference.get("port").cloned()))
    };
    let same = || free().find(|(_, (reference, _))| meaning(reference) == meaning(old));
    exact.or_else(same).map(|(index, _)| index)
}

/// Whether an entry with our controllerName that is not wanted stays: it is not ours to judge.
fn stays(reference: &Value, namespace: &Arc<str>, context: &Context<'_>) -> bool {
    let parent = of_reference(reference, namespace);
    parent.is_none_or(|parent| (context.standing)(&parent) == Standing::Foreign)
}
