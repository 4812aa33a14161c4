//! What holds whatever was stored and whatever is wanted.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Controllers, Gateways and sections are few, so that they meet.
fn reference() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["ours", "ours-2", "gone", "theirs"]);
    let section = prop::option::of(prop::sample::select(vec!["a", "b"]));
    (name, section, any::<bool>()).prop_map(|(name, section, is_full)| {
        let mut reference = json!({"name": name});
        if let Some(section) = section {
            reference["sectionName"] = section.into();
        }
        if is_full {
            reference["namespace"] = "default".into();
        }
        reference
    })
}

fn stored_condition() -> impl Strategy<Value = Value> {
    let kinds = vec!["Accepted", "ResolvedRefs", "PartiallyInvalid", "example.org/Foreign"];
    let statuses = vec!["True", "False", "Unknown"];
    (prop::sample::select(kinds), prop::sample::select(statuses), 0..3_i64)
        .prop_map(|(kind, status, generation)| stored(kind, status, "Accepted", "why", generation))
}

/// A list map: each type once.
fn stored_conditions() -> impl Strategy<Value = Value> {
    prop::collection::vec(stored_condition(), 1..4).prop_map(|mut conditions| {
        let mut seen = BTreeSet::new();
        conditions.retain(|condition| seen.insert(condition["type"].to_string()));
        conditions.into()
    })
}

fn stored_entry() -> impl Strategy<Value = Value> {
    let controller = prop::sample::select(vec![OURS, OURS, "other.example/x"]);
    (controller, reference(), stored_conditions())
        .prop_map(|(controller, reference, conditions)| entry(controller, reference, conditions))
}

fn conditions() -> impl Strategy<Value = Vec<Condition>> {
    (any::<bool>(), any::<bool>()).prop_map(|(is_accepted, is_resolved)| {
        let resolved = Condition::new(kind::RESOLVED_REFS, is_resolved, reason::RESOLVED_REFS, "refs");
        vec![accepted(is_accepted), resolved]
    })
}

/// A route as stored, and what an agent wants of it for the Gateways that `is_wanted` names.
fn case() -> impl Strategy<Value = (Value, Vec<Vec<Condition>>)> {
    let references = prop::collection::vec(reference(), 0..5).prop_map(|mut references| {
        let mut seen = BTreeSet::new();
        references.retain(|reference| seen.insert(reference.to_string()));
        references
    });
    (references, prop::collection::vec(stored_entry(), 0..36)).prop_flat_map(|(references, mut entries)| {
        entries.truncate(32);
        let n = references.len();
        let current = route(2, references.into(), entries.into());
        (Just(current), prop::collection::vec(conditions(), n))
    })
}

fn desired(current: &Value, conditions: &[Vec<Condition>], is_wanted: impl Fn(&str) -> bool) -> ObjectStatus {
    let references = current["spec"]["parentRefs"].as_array().expect("a list");
    let scopes =
        references.iter().zip(conditions).enumerate().filter_map(|(index, (reference, conditions))| {
            let name = reference["name"].as_str().expect("a name");
            is_wanted(name).then(|| parent(index, name, conditions.clone()))
        });
    route_status(2, scopes.collect())
}

fn with_status(current: &Value, outcome: Outcome) -> Value {
    let mut after = current.clone();
    if let Outcome::Write(status) = outcome {
        after["status"] = status;
    }
    after
}

fn entries(object: &Value) -> Vec<Value> {
    object["status"]["parents"].as_array().cloned().unwrap_or_default()
}

fn is_foreign(entry: &Value) -> bool {
    entry["controllerName"] != json!(OURS) || entry["parentRef"]["name"] == json!("theirs")
}

proptest! {
    // Each case writes and hashes dozens of entries.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn foreign_entries_are_kept_byte_for_byte_and_in_order((current, conditions) in case()) {
        let desired = desired(&current, &conditions, |name| name.starts_with("ours"));
        let after = with_status(&current, plan(&current, &desired, &CONTEXT).outcome);
        let foreign = |object: &Value| -> Vec<String> {
            entries(object).iter().filter(|entry| is_foreign(entry)).map(Value::to_string).collect()
        };
        prop_assert_eq!(foreign(&current), foreign(&after));
        prop_assert!(entries(&after).len() <= 32);
    }

    #[test]
    fn ours_are_one_per_wanted_reference_and_no_more((current, conditions) in case()) {
        let desired = desired(&current, &conditions, |name| name.starts_with("ours"));
        let Plan { outcome, unplaced } = plan(&current, &desired, &CONTEXT);
        let after = with_status(&current, outcome);
        let ours: Vec<Value> = entries(&after).into_iter().filter(|entry| !is_foreign(entry)).collect();
        let references: BTreeSet<String> = ours.iter().map(|entry| entry["parentRef"].to_string()).collect();
        prop_assert_eq!(references.len(), ours.len());
        prop_assert_eq!(ours.len() + unplaced, desired.scopes.len());
        let declared: Vec<String> =
            current["spec"]["parentRefs"].as_array().expect("a list").iter().map(Value::to_string).collect();
        prop_assert!(references.iter().all(|reference| declared.contains(reference)));
    }

    #[test]
    fn a_second_look_writes_nothing_and_the_digest_knows_it((current, conditions) in case()) {
        let desired = desired(&current, &conditions, |name| name.starts_with("ours"));
        let digest = |object: &Value| Digest::new("HTTPRoute", &desired.name, object, OURS);
        let first = plan(&current, &desired, &CONTEXT);
        if is_settled(&digest(&current), &desired, &standing) {
            prop_assert_eq!(&first.outcome, &Outcome::Same);
        }
        let after = with_status(&current, first.outcome);
        let second = plan(&after, &desired, &CONTEXT);
        prop_assert_eq!(second.outcome, Outcome::Same);
        prop_assert_eq!(is_settled(&digest(&after), &desired, &standing), second.unplaced == 0);
    }

    #[test]
    fn transition_times_move_with_the_status_only((current, conditions) in case()) {
        let desired = desired(&current, &conditions, |name| name.starts_with("ours"));
        let after = with_status(&current, plan(&current, &desired, &CONTEXT).outcome);
        for entry in entries(&after).iter().filter(|entry| !is_foreign(entry)) {
            for condition in entry["conditions"].as_array().expect("a list") {
                // Nothing was transitioned from what was not there in any entry of ours.
                let was = entries(&current).into_iter().filter(|old| !is_foreign(old)).any(|old| {
                    let old = old["conditions"].as_array().cloned().unwrap_or_default();
                    old.iter().any(|old| old["type"] == condition["type"] && old["status"] == condition["status"])
                });
                prop_assert!(was || condition["lastTransitionTime"] == json!(NOW));
                let is_kept = condition["lastTransitionTime"] == json!(THEN);
                prop_assert!(is_kept || condition["lastTransitionTime"] == json!(NOW));
            }
        }
    }

    /// Several agents, one controllerName: each writes its own Gateways' entries, and they come to rest.
    #[test]
    fn agents_that_share_a_controller_name_do_not_fight((current, conditions) in case()) {
        let room = entries(&current).len() < 24;
        prop_assume!(room);
        let agent = |own: &'static str| move |parent: &Parent| {
            if &*parent.name.name == own { Standing::Ours } else { Standing::Foreign }
        };
        let agents = ["ours", "ours-2", "theirs"];
        let mut object = current.clone();
        let turn = |object: &mut Value, own: &'static str| {
            let standing = agent(own);
            let context = Context { standing: &standing, ..CONTEXT };
            let wanted = desired(&current, &conditions, |name| name == own);
            let outcome = plan(object, &wanted, &context).outcome;
            let is_quiet = outcome == Outcome::Same;
            *object = with_status(object, outcome);
            is_quiet
        };
        for own in agents {
            turn(&mut object, own);
        }
        for own in agents {
            prop_assert!(turn(&mut object, own), "{own} writes again");
        }
    }
}
