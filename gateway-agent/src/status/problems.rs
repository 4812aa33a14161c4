//! What is wrong with objects, as findings for `gateway-agent check`: without a data path nothing is Programmed, and
//! that is no fault of the manifests.

use super::names::{kind, reason};
use super::{Condition, ConditionStatus, ObjectStatus, Scope, StatusList};
use crate::api::Kind;
use crate::snapshot::ObjectName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectProblem {
    /// As in Kubernetes.
    pub kind: &'static str,
    pub name: ObjectName,
    /// Such as `spec.listeners[2]`; empty when it is about the whole object.
    pub field: String,
    /// False: the object is fine, and has no effect here or depends on the machine.
    pub is_error: bool,
    pub message: String,
}

/// What the conditions that `translate` made complain about.
pub fn problems(statuses: &StatusList) -> Vec<ObjectProblem> {
    statuses.iter().flat_map(|status| problems_of(status)).collect()
}

fn problems_of(status: &ObjectStatus) -> Vec<ObjectProblem> {
    let problem = |field: String, is_error, message| ObjectProblem {
        kind: status.kind,
        name: status.name.clone(),
        field,
        is_error,
        message,
    };
    if status.scopes.is_empty() {
        let is_policy = status.kind == Kind::BackendTlsPolicy.as_str();
        let field = if is_policy { "spec.targetRefs" } else { "spec.parentRefs" };
        return vec![problem(field.into(), false, status.unattached().to_owned())];
    }
    let mut found: Vec<ObjectProblem> = Vec::new();
    let mut n_listeners = 0;
    for scope in status.scopes.iter() {
        let field = match &scope.scope {
            Scope::Object => String::new(),
            Scope::Listener(_) => {
                n_listeners += 1;
                format!("spec.listeners[{}]", n_listeners - 1)
            }
            Scope::Parent { index, .. } => format!("spec.parentRefs[{index}]"),
            Scope::Ancestor { .. } => "spec".into(),
        };
        for condition in scope.conditions.iter().filter(|condition| is_complaint(condition)) {
            let Condition { kind, reason, message, .. } = condition;
            // A route's references and rules are the same whatever the parent.
            let is_own = matches!(*kind, kind::RESOLVED_REFS | kind::PARTIALLY_INVALID)
                || (*kind == kind::ACCEPTED && *reason == reason::UNSUPPORTED_VALUE);
            let field = match &scope.scope {
                Scope::Parent { .. } if is_own => "spec.rules".to_owned(),
                _ => field.clone(),
            };
            let is_warning =
                matches!(*kind, kind::OVERLAPPING_TLS_CONFIG | kind::INSECURE_FRONTEND_VALIDATION_MODE);
            let is_error = *reason != reason::ADDRESS_NOT_USABLE && !is_warning;
            let next = problem(field, is_error, format!("{reason}: {message}"));
            if !found.contains(&next) {
                found.push(next);
            }
        }
    }
    found
}

fn is_complaint(condition: &Condition) -> bool {
    match condition.kind {
        // Said by Accepted too.
        kind::CONFLICTED => false,
        negative if kind::is_negative(negative) => condition.status == ConditionStatus::True,
        // Said by each listener that is not valid.
        _ if condition.reason == reason::LISTENERS_NOT_VALID => false,
        kind::PROGRAMMED => condition.reason == reason::ADDRESS_NOT_USABLE,
        _ => condition.status == ConditionStatus::False,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::problems;
    use crate::store::Store;
    use crate::store::testing::{gateway, with_spec};
    use crate::translate::{Config, translate};

    fn told(objects: &[crate::api::Object]) -> Vec<String> {
        let mut store = Store::default();
        store.replace_all(objects);
        let config = Config::default();
        let text = |problem: super::ObjectProblem| {
            let level = if problem.is_error { "error" } else { "warning" };
            format!("{level} {} {} {}: {}", problem.kind, problem.name.name, problem.field, problem.message)
        };
        problems(&translate(&store, &config).statuses).into_iter().map(text).collect()
    }

    #[test]
    fn good_objects_have_none() {
        let listeners = json!([{"name": "a", "protocol": "HTTP", "port": 80}]);
        let route = json!({"parentRefs": [{"name": "gw"}]});
        assert!(told(&[gateway("gw", listeners), with_spec("HTTPRoute", "r", route)]).is_empty());
    }

    #[test]
    fn each_problem_is_told_once_with_its_field() {
        let listeners = json!([
            {"name": "a", "protocol": "HTTP", "port": 80}, {"name": "b", "protocol": "ODD", "port": 81},
        ]);
        let rules = json!([{"backendRefs": [{"name": "absent", "port": 80}]}]);
        let parents = json!([
            {"name": "gw", "sectionName": "a"}, {"name": "gw", "sectionName": "none"}, {"name": "other"},
        ]);
        let orphan = json!({"parentRefs": [{"name": "other"}], "rules": rules});
        assert_eq!(
            told(&[
                gateway("gw", listeners),
                with_spec("HTTPRoute", "r", json!({"parentRefs": parents, "rules": rules})),
                with_spec("HTTPRoute", "orphan", orphan),
            ]),
            [
                "error Gateway gw spec.listeners[1]: UnsupportedProtocol: protocol ODD is not supported; HTTP, HTTPS, TLS, TCP and UDP are",
                "warning HTTPRoute orphan spec.parentRefs: no parentRef names a Gateway of this agent",
                "error HTTPRoute r spec.rules: BackendNotFound: Service default/absent does not exist",
                "error HTTPRoute r spec.parentRefs[1]: NoMatchingParent: no listener is named none",
            ]
        );
    }

    #[test]
    fn addresses_of_another_machine_are_a_warning() {
        let spec = json!({"gatewayClassName": "gateway-agent", "addresses": [{"value": "198.51.100.7"}],
            "listeners": [{"name": "a", "protocol": "HTTP", "port": 80}]});
        let told = told(&[with_spec("Gateway", "gw", spec)]);
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with("warning Gateway gw : AddressNotUsable"), "{told:?}");
    }
}
