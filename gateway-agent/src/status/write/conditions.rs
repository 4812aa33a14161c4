//! Lists of conditions: ours are set by type, those of others stay as and where they are.
//!
//! **Invariant:** pure. A transition time moves only when the condition's status does.

use std::borrow::Cow;
use std::hash::{Hash as _, Hasher};

use serde_json::{Map, Value, json};

use crate::status::Condition;
use crate::status::names::kind;
use crate::status::table::status_text;

/// `maxItems` of every list of conditions in the CRDs.
const MAX_CONDITIONS: usize = 8;

/// `maxLength` of a condition's message, in characters.
const MAX_MESSAGE: usize = 32_768;

/// Whether conditions of that type are the agent's to set and to take away.
fn is_managed(kind: &str) -> bool {
    kind::ORDER.contains(&kind)
}

/// Sets the `conditions` of `holder` (a status, an entry or a listener). Gives how many found no room.
pub(super) fn merge(
    holder: &mut Map<String, Value>,
    wanted: &[Condition],
    generation: i64,
    now: &str,
) -> usize {
    let present = holder.get("conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut merged: Vec<Value> = Vec::with_capacity(present.len().max(wanted.len()));
    let mut is_set = vec![false; wanted.len()];
    for condition in present {
        let kind = condition.get("type").and_then(Value::as_str).unwrap_or_default();
        let Some(index) = wanted.iter().position(|wanted| wanted.kind == kind) else {
            // One that is managed and not wanted is no longer true of the object.
            if !is_managed(kind) {
                merged.push(condition.clone());
            }
            continue;
        };
        if !std::mem::replace(&mut is_set[index], true) {
            merged.push(updated(condition, &wanted[index], generation, now));
        }
    }
    let mut unplaced = 0;
    for (wanted, _) in wanted.iter().zip(&is_set).filter(|(_, is_set)| !**is_set) {
        if merged.len() < MAX_CONDITIONS {
            merged.push(updated(&Value::Null, wanted, generation, now));
        } else {
            unplaced += 1;
        }
    }
    holder.insert("conditions".into(), merged.into());
    unplaced
}

fn updated(present: &Value, wanted: &Condition, generation: i64, now: &str) -> Value {
    let status = status_text(wanted.status);
    let since = present
        .get("lastTransitionTime")
        .filter(|_| present.get("status").and_then(Value::as_str) == Some(status))
        .cloned()
        .unwrap_or_else(|| now.into());
    let mut condition = present.as_object().cloned().unwrap_or_default();
    condition.insert("type".into(), wanted.kind.into());
    condition.insert("status".into(), status.into());
    condition.insert("reason".into(), wanted.reason.into());
    condition.insert("message".into(), message(&wanted.message).into());
    condition.insert("lastTransitionTime".into(), since);
    condition.insert("observedGeneration".into(), json!(generation));
    condition.into()
}

fn message(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_MESSAGE) {
        None => text.into(),
        Some((end, _)) => text[..end].into(),
    }
}

/// Feeds `hasher` with what [`merge`] would leave of `wanted`; [`hash_present`] does the same for what is there.
pub(super) fn hash_wanted(wanted: &[Condition], generation: i64, hasher: &mut impl Hasher) {
    let mut wanted: Vec<&Condition> = wanted.iter().collect();
    wanted.sort_unstable_by_key(|condition| condition.kind);
    wanted.len().hash(hasher);
    for Condition { kind, status, reason, message: text } in wanted {
        hash_one(kind, status_text(*status), reason, &message(text), Some(generation), hasher);
    }
}

pub(super) fn hash_present(holder: &Value, hasher: &mut impl Hasher) {
    let present = holder.get("conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    fn text<'a>(condition: &'a Value, field: &str) -> &'a str {
        condition.get(field).and_then(Value::as_str).unwrap_or_default()
    }
    let mut managed: Vec<&Value> =
        present.iter().filter(|condition| is_managed(text(condition, "type"))).collect();
    managed.sort_by_key(|condition| text(condition, "type"));
    managed.len().hash(hasher);
    for condition in managed {
        let observed = condition.get("observedGeneration").and_then(Value::as_i64);
        let [kind, status, reason, message] =
            ["type", "status", "reason", "message"].map(|field| text(condition, field));
        hash_one(kind, status, reason, message, observed, hasher);
    }
}

fn hash_one(
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    hasher: &mut impl Hasher,
) {
    (kind, status, reason, message, generation).hash(hasher);
}
