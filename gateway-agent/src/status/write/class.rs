//! The status of a GatewayClass, as the acknowledger writes it.
//!
//! **Invariant:** pure. Sets Accepted and the supported features; everything else stays.

use serde_json::{Value, json};

use super::{conditions, generation};
use crate::status::Condition;
use crate::status::names::{kind, reason};

/// The status that `class`, a GatewayClass of ours as the API server gave it, should have; `None` where it has it.
/// With `keeps_features` a list of features that is there stays.
pub fn plan_class(class: &Value, features: &[&str], keeps_features: bool, now: &str) -> Option<Value> {
    let old = class.get("status").cloned().unwrap_or(Value::Null);
    let mut new = old.as_object().cloned().unwrap_or_default();
    conditions::merge(&mut new, &[accepted(class)], generation(class), now);
    let has_features =
        new.get("supportedFeatures").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if !(keeps_features && has_features) {
        let features: Vec<Value> = features.iter().map(|name| json!({"name": name})).collect();
        new.insert("supportedFeatures".into(), features.into());
    }
    let new = Value::Object(new);
    (new != old).then_some(new)
}

fn accepted(class: &Value) -> Condition {
    match class.pointer("/spec/parametersRef") {
        None | Some(Value::Null) => Condition::new(
            kind::ACCEPTED,
            true,
            reason::ACCEPTED,
            "agents of this controller serve the class",
        ),
        Some(_) => Condition::new(
            kind::ACCEPTED,
            false,
            reason::INVALID_PARAMETERS,
            "parametersRef: a class has no parameters, those of a Gateway are named by spec.infrastructure.parametersRef",
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::plan_class;

    const NOW: &str = "2026-02-02T00:00:00Z";

    fn class(spec: Value, status: Value) -> Value {
        json!({"metadata": {"generation": 2}, "spec": spec, "status": status})
    }

    fn condition(kind: &str, status: &str, reason: &str, generation: i64) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": NOW,
            "observedGeneration": generation, "message": "agents of this controller serve the class"})
    }

    #[test]
    fn a_class_is_accepted_with_the_features_and_what_others_said_stays() {
        let foreign = json!({"type": "example.org/Stale", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let pending = json!({"type": "Accepted", "status": "Unknown", "reason": "Pending", "message": "Waiting",
            "lastTransitionTime": "1970-01-01T00:00:00Z"});
        let current = class(json!({}), json!({"conditions": [foreign, pending]}));
        let status = plan_class(&current, &["A", "B"], true, NOW).expect("a status");
        assert_eq!(
            status,
            json!({
                "conditions": [foreign, condition("Accepted", "True", "Accepted", 2)],
                "supportedFeatures": [{"name": "A"}, {"name": "B"}],
            })
        );
        assert_eq!(plan_class(&class(json!({}), status), &["A", "B"], false, "later"), None);
    }

    #[test]
    fn features_of_another_version_stay_where_they_are_to_be_kept() {
        let conditions = json!([condition("Accepted", "True", "Accepted", 2)]);
        let current =
            class(json!({}), json!({"conditions": conditions, "supportedFeatures": [{"name": "Other"}]}));
        assert_eq!(plan_class(&current, &["A"], true, NOW), None);
        let status = plan_class(&current, &["A"], false, NOW).expect("a status");
        assert_eq!(status["supportedFeatures"], json!([{"name": "A"}]));
    }

    #[test]
    fn parameters_of_a_class_are_refused() {
        let current =
            class(json!({"parametersRef": {"group": "", "kind": "ConfigMap", "name": "p"}}), Value::Null);
        let status = plan_class(&current, &[], false, NOW).expect("a status");
        assert_eq!(status["conditions"][0]["reason"], json!("InvalidParameters"));
        assert_eq!(status["conditions"][0]["status"], json!("False"));
    }
}
