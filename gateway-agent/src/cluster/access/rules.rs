//! Whether a list of rules, as a rules review answers it, covers a right.
//!
//! **Invariant:** pure.

use k8s_openapi::api::authorization::v1::ResourceRule;

pub(super) type Rule = ResourceRule;

/// Whether every object of the resource is covered: a rule that names objects covers no list.
pub(super) fn covers(rules: &[Rule], verb: &str, group: &str, plural: &str) -> bool {
    rules.iter().any(|rule| {
        has(Some(&rule.verbs), verb)
            && has(rule.api_groups.as_ref(), group)
            && has(rule.resources.as_ref(), plural)
            && rule.resource_names.as_ref().is_none_or(Vec::is_empty)
    })
}

fn has(list: Option<&Vec<String>>, what: &str) -> bool {
    list.is_some_and(|list| list.iter().any(|item| item == "*" || item == what))
}

#[cfg(test)]
mod tests {
    use super::{Rule, covers};

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Rule {
        let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
        Rule {
            verbs: owned(verbs),
            api_groups: Some(owned(groups)),
            resources: Some(owned(resources)),
            resource_names: Some(owned(names)),
        }
    }

    // O54
    #[test]
    fn a_right_is_covered_by_one_rule_as_a_whole() {
        let rules = [
            rule(&["get", "list"], &[""], &["services"], &[]),
            rule(&["watch"], &["apps"], &["services"], &[]),
            rule(&["*"], &["discovery.k8s.io"], &["*"], &[]),
            rule(&["list"], &[""], &["secrets"], &["one"]),
        ];
        assert!(covers(&rules, "list", "", "services"));
        assert!(!covers(&rules, "watch", "", "services"), "another group's");
        assert!(covers(&rules, "watch", "discovery.k8s.io", "endpointslices"));
        assert!(!covers(&rules, "list", "", "secrets"), "one object is not all");
        assert!(!covers(&[], "list", "", "services"));
    }
}
