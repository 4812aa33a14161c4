//! Other hosts and paths than those that a client asked for: `HTTPURLRewriteFilter` and `HTTPPathModifier`.
//!
//! Does not touch the query, and does not choose routes: they were chosen by what came.

use std::sync::Arc;

/// What the server behind is asked for instead. What is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// Replaces `Host`. In lower case, without a port.
    pub hostname: Option<Arc<str>>,
    pub path: Option<PathChange>,
}

/// `HTTPPathModifier`. Replacements are in normal form, begin with `/` and need no escaping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathChange {
    Full(Arc<str>),
    /// Both without trailing `/`, so that `/` is the empty string.
    Prefix {
        matched: Arc<str>,
        replacement: Arc<str>,
    },
}

// === impl Rewrite ===

impl Rewrite {
    /// The path for a request with `path`, which is in normal form, in at most three pieces to be joined.
    pub fn path<'a>(&'a self, path: &'a str) -> [&'a str; 3] {
        self.path.as_ref().map_or([path, "", ""], |change| change.pieces(path))
    }

    /// What `later` says, and `self` where it says nothing.
    #[must_use]
    pub fn then(&self, later: &Self) -> Self {
        Self {
            hostname: later.hostname.as_ref().or(self.hostname.as_ref()).cloned(),
            path: later.path.as_ref().or(self.path.as_ref()).cloned(),
        }
    }
}

// === impl PathChange ===

impl PathChange {
    /// Appends what becomes of `path`, which is in normal form.
    pub fn append(&self, path: &str, out: &mut Vec<u8>) {
        self.pieces(path).iter().for_each(|piece| out.extend_from_slice(piece.as_bytes()));
    }

    fn pieces<'a>(&'a self, path: &'a str) -> [&'a str; 3] {
        match self {
            Self::Full(full) => [full, "", ""],
            Self::Prefix { matched, replacement } => {
                // The route matched, so the prefix is there.
                let rest = path.strip_prefix(&**matched).unwrap_or(path);
                if replacement.is_empty() {
                    // A path that begins with `//` is another server's address to some readers (O36).
                    ["/", rest.trim_start_matches('/'), ""]
                } else {
                    [replacement, rest, ""]
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PathChange, Rewrite};

    fn cut(path: &str) -> std::sync::Arc<str> {
        path.trim_end_matches('/').into()
    }

    // The table of `HTTPPathModifier.replacePrefixMatch`, as configuration has it, and O36.
    #[test]
    fn prefix_is_replaced_as_the_api_says() {
        for (path, matched, replacement, expected) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/a", "/", "/b", "/b/a"),
            ("/", "/", "/b", "/b/"),
            ("/service/version", "/service/", "/api/service/", "/api/service/version"),
            ("/service", "/service/", "/api/service/", "/api/service"),
            ("/api/foo/public/bar", "/api/foo/public/", "/", "/bar"),
            ("/foo//evil.example/x", "/foo", "/", "/evil.example/x"),
            ("//evil.example/x", "/", "/", "/evil.example/x"),
        ] {
            let change = PathChange::Prefix { matched: cut(matched), replacement: cut(replacement) };
            let mut out = Vec::new();
            change.append(path, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{path} {matched} {replacement}");
        }
    }

    #[test]
    fn backend_replaces_what_the_rule_rewrites() {
        let full = |path: &str| Some(PathChange::Full(path.into()));
        let rule = Rewrite { hostname: Some("a".into()), path: full("/a") };
        let backend = Rewrite { hostname: None, path: full("/b") };
        assert_eq!(rule.then(&Rewrite::default()), rule);
        assert_eq!(rule.then(&backend), Rewrite { hostname: Some("a".into()), path: full("/b") });
        assert_eq!(rule.then(&backend).path("/x").concat(), "/b");
        assert_eq!(Rewrite::default().path("/x//y").concat(), "/x//y");
    }
}
