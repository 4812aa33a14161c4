//! Hostname patterns: intersection, coverage, specificity.

use std::sync::Arc;

/// A name, `*.suffix`, or `None` for every name; in lower case.
pub(super) type Pattern = Option<Arc<str>>;

/// How specific a pattern is: the greater wins (`HTTPRouteSpec.hostnames`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Specificity {
    Any,
    Wildcard(usize),
    Exact(usize),
}

pub(super) fn specificity(pattern: &Pattern) -> Specificity {
    match pattern.as_deref() {
        None => Specificity::Any,
        Some(name) if name.starts_with("*.") => Specificity::Wildcard(name.len()),
        Some(name) => Specificity::Exact(name.len()),
    }
}

/// Whether `wide` holds for every name that `narrow` holds for.
pub(super) fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
    let (Some(wide), narrow) = (wide, narrow) else {
        return true;
    };
    let Some(narrow) = narrow else {
        return false;
    };
    match wide.strip_prefix("*.") {
        None => wide == narrow,
        Some(suffix) => {
            let rest = narrow.strip_suffix(suffix);
            wide == narrow || rest.is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        }
    }
}

/// The names that both hold for, `None` where there are none: of two patterns that meet, one covers the other.
pub(super) fn intersect(one: &Pattern, other: &Pattern) -> Option<Pattern> {
    if covers(one, other) {
        Some(other.clone())
    } else if covers(other, one) {
        Some(one.clone())
    } else {
        None
    }
}

/// Every pattern that covers `pattern` and is not `pattern`, the most specific first.
pub(super) fn ancestors(pattern: &Pattern) -> Vec<Pattern> {
    let Some(name) = pattern else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut rest: &str = name.strip_prefix("*.").unwrap_or(name);
    while let Some((_, suffix)) = rest.split_once('.') {
        found.push(Some(format!("*.{suffix}").into()));
        rest = suffix;
    }
    found.push(None);
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Pattern, ancestors, covers, intersect, specificity};

    fn pattern(text: &str) -> Pattern {
        (!text.is_empty()).then(|| text.into())
    }

    #[test]
    fn intersection_is_the_more_specific_of_the_two() {
        for (one, other, expected) in [
            ("", "", Some("")),
            ("", "a.example.com", Some("a.example.com")),
            ("*.example.com", "", Some("*.example.com")),
            ("*.example.com", "a.example.com", Some("a.example.com")),
            ("*.example.com", "a.b.example.com", Some("a.b.example.com")),
            ("*.example.com", "*.b.example.com", Some("*.b.example.com")),
            ("*.example.com", "*.example.com", Some("*.example.com")),
            ("*.example.com", "example.com", None),
            ("*.example.com", "xexample.com", None),
            ("*.example.com", "*.xexample.com", None),
            ("*.example.com", "*.com", Some("*.example.com")),
            ("a.example.com", "b.example.com", None),
            ("a.example.com", "a.example.com", Some("a.example.com")),
            ("*.a.com", "*.b.com", None),
        ] {
            assert_eq!(
                intersect(&pattern(one), &pattern(other)),
                expected.map(pattern),
                "{one:?} and {other:?}"
            );
        }
    }

    #[test]
    fn ancestors_run_from_the_longest_wildcard_to_the_catch_all() {
        let texts = |text: &str| -> Vec<String> {
            ancestors(&pattern(text)).into_iter().map(|found| found.as_deref().unwrap_or("").into()).collect()
        };
        assert_eq!(texts("a.b.c"), ["*.b.c", "*.c", ""]);
        assert_eq!(texts("*.b.c"), ["*.c", ""]);
        assert_eq!(texts("com"), [""]);
        assert!(texts("").is_empty());
    }

    fn any_pattern() -> impl Strategy<Value = Pattern> {
        let labels = prop::collection::vec("[ab]", 1..4);
        (labels, 0..3u8).prop_map(|(labels, form)| match form {
            0 => None,
            1 => Some(labels.join(".").into()),
            _ => Some(format!("*.{}", labels.join(".")).into()),
        })
    }

    proptest! {
        #[test]
        fn intersection_is_commutative(one in any_pattern(), other in any_pattern()) {
            prop_assert_eq!(intersect(&one, &other), intersect(&other, &one));
        }

        #[test]
        fn covering_pattern_is_an_ancestor_and_less_specific(one in any_pattern(), other in any_pattern()) {
            if one != other {
                prop_assert_eq!(covers(&one, &other), ancestors(&other).contains(&one));
                if covers(&one, &other) {
                    prop_assert!(specificity(&one) < specificity(&other));
                }
            }
        }
    }
}
