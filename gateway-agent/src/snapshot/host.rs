//! Hostname lookup: exact names, then the longest wildcard, then the catch-all.

use std::sync::Arc;

use super::SharedMap;

/// Values by hostname, as Gateway API matches them: `*.example.com` stands for one or more labels before the suffix
/// and never for `example.com` itself (`Hostname` in `apis/v1/shared_types.go`).
///
/// Names are stored and looked up in lower case, without port and without a trailing dot. A clone shares everything with
/// its original, and so does what is made of it by a few changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTable<T> {
    exact: SharedMap<T>,
    /// Keyed by what follows `*.`.
    wildcard: SharedMap<T>,
    any: Option<T>,
}

impl<T> Default for HostTable<T> {
    fn default() -> Self {
        Self { exact: SharedMap::default(), wildcard: SharedMap::default(), any: None }
    }
}

impl<T: Clone> HostTable<T> {
    /// Sets the value for `pattern`: a name, `*.suffix`, or `None` for every name. Returns the one it replaces.
    pub fn insert(&mut self, pattern: Option<&str>, value: T) -> Option<T> {
        self.insert_shared(pattern.map(Arc::from).as_ref(), value)
    }

    /// The same, where an exact name is not copied.
    pub fn insert_shared(&mut self, pattern: Option<&Arc<str>>, value: T) -> Option<T> {
        let Some(name) = pattern else { return self.any.replace(value) };
        match name.strip_prefix("*.") {
            Some(suffix) => self.wildcard.insert(suffix, value),
            None => self.exact.insert(name.clone(), value),
        }
    }

    /// Takes the value for exactly this pattern away.
    pub fn remove(&mut self, pattern: Option<&str>) -> Option<T> {
        match pattern {
            None => self.any.take(),
            Some(name) => match name.strip_prefix("*.") {
                Some(suffix) => self.wildcard.remove(suffix),
                None => self.exact.remove(name),
            },
        }
    }
}

impl<T> HostTable<T> {
    /// The value set for exactly this pattern.
    pub fn at(&self, pattern: Option<&str>) -> Option<&T> {
        match pattern {
            None => self.any.as_ref(),
            Some(name) => match name.strip_prefix("*.") {
                Some(suffix) => self.wildcard.get(suffix),
                None => self.exact.get(name),
            },
        }
    }

    /// The most specific value for `host`.
    pub fn lookup(&self, host: &str) -> Option<&T> {
        self.matching(host).next()
    }

    /// The values of all patterns that `host` matches, the most specific first.
    pub fn matching<'t>(&'t self, host: &str) -> impl Iterator<Item = &'t T> {
        let exact = self.exact.get(host);
        let mut rest = if self.wildcard.is_empty() { "" } else { host };
        let wildcard = std::iter::from_fn(move || {
            while let Some((_, suffix)) = rest.split_once('.') {
                rest = suffix;
                if let Some(value) = self.wildcard.get(suffix) {
                    return Some(value);
                }
            }
            None
        });
        exact.into_iter().chain(wildcard).chain(self.any.as_ref())
    }

    /// Every value, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        let named = self.exact.iter().chain(self.wildcard.iter()).map(|(_, value)| value);
        named.chain(self.any.as_ref())
    }

    /// Every pattern as it was set and its value, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (Option<String>, &T)> {
        let exact = self.exact.iter().map(|(name, value)| (Some(name.to_string()), value));
        let wildcard = self.wildcard.iter().map(|(suffix, value)| (Some(format!("*.{suffix}")), value));
        exact.chain(wildcard).chain(self.any.as_ref().map(|value| (None, value)))
    }

    pub fn len(&self) -> usize {
        self.exact.len() + self.wildcard.len() + usize::from(self.any.is_some())
    }

    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty() && self.any.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::HostTable;

    fn table(patterns: &[Option<&'static str>]) -> HostTable<&'static str> {
        let mut table = HostTable::default();
        for pattern in patterns {
            table.insert(*pattern, pattern.unwrap_or("any"));
        }
        table
    }

    #[test]
    fn exact_beats_wildcard_beats_catch_all() {
        let table = table(&[None, Some("*.example.com"), Some("a.example.com")]);
        assert_eq!(table.lookup("a.example.com"), Some(&"a.example.com"));
        assert_eq!(table.lookup("b.example.com"), Some(&"*.example.com"));
        assert_eq!(table.lookup("example.org"), Some(&"any"));
    }

    #[test]
    fn matching_patterns_come_the_most_specific_first() {
        let table =
            table(&[None, Some("*.com"), Some("*.example.com"), Some("a.example.com"), Some("*.org")]);
        let found = |host| table.matching(host).copied().collect::<Vec<_>>();
        assert_eq!(found("a.example.com"), ["a.example.com", "*.example.com", "*.com", "any"]);
        assert_eq!(found("example.com"), ["*.com", "any"]);
        assert_eq!(found(""), ["any"]);
    }

    #[test]
    fn patterns_come_out_as_they_went_in() {
        let mut patterns: Vec<_> =
            table(&[None, Some("*.a.b"), Some("c")]).iter().map(|(one, _)| one).collect();
        patterns.sort();
        assert_eq!(patterns, [None, Some("*.a.b".to_owned()), Some("c".to_owned())]);
    }

    #[test]
    fn patterns_are_set_and_taken_one_by_one() {
        let mut table = table(&[None, Some("*.a.b"), Some("c.a.b")]);
        assert_eq!((table.len(), table.at(Some("*.a.b"))), (3, Some(&"*.a.b")));
        assert_eq!(table.remove(Some("c.a.b")), Some("c.a.b"));
        assert_eq!(table.lookup("c.a.b"), Some(&"*.a.b"));
        assert_eq!(table.remove(Some("c.a.b")), None);
        assert_eq!((table.remove(Some("*.a.b")), table.remove(None)), (Some("*.a.b"), Some("any")));
        assert!(table.is_empty() && table.at(None).is_none());
    }

    // O46: one or more labels, apex excluded, on a label boundary.
    #[test]
    fn wildcard_matches_one_or_more_labels_and_never_the_apex() {
        let table = table(&[Some("*.bar.com")]);
        assert_eq!(table.lookup("baz.bar.com"), Some(&"*.bar.com"));
        assert_eq!(table.lookup("multiple.prefixes.bar.com"), Some(&"*.bar.com"));
        assert_eq!(table.lookup("bar.com"), None);
        assert_eq!(table.lookup("xbar.com"), None);
    }

    #[test]
    fn longest_wildcard_wins() {
        let table = table(&[Some("*.com"), Some("*.example.com")]);
        assert_eq!(table.lookup("a.example.com"), Some(&"*.example.com"));
        assert_eq!(table.lookup("a.example.org"), None);
        assert_eq!(table.lookup("example.com"), Some(&"*.com"));
    }
}
