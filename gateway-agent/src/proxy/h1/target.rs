//! Request targets (RFC 9112 section 3.2). Does not look into paths: see [`crate::syntax::path`].

use super::error::HeadError;

/// A target by its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// `path` is never empty.
    Absolute {
        authority: &'a str,
        path: &'a str,
        query: Option<&'a str>,
    },
    Asterisk,
    Origin {
        path: &'a str,
        query: Option<&'a str>,
    },
}

impl<'a> Target<'a> {
    /// Splits a target. CONNECT's authority form is not among them.
    pub fn parse(target: &'a str) -> Result<Self, HeadError> {
        if memchr::memchr(b'#', target.as_bytes()).is_some() {
            return Err(HeadError::Target);
        }
        if target == "*" {
            return Ok(Self::Asterisk);
        }
        if target.starts_with('/') {
            let (path, query) = split_query(target);
            return Ok(Self::Origin { path, query });
        }
        let (scheme, rest) = target.split_once("://").ok_or(HeadError::Target)?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return Err(HeadError::Target);
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (path, query) = split_query(rest);
        Ok(Self::Absolute { authority, path: if path.is_empty() { "/" } else { path }, query })
    }
}

fn split_query(rest: &str) -> (&str, Option<&str>) {
    match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    // O22
    #[test]
    fn absolute_form_is_split() {
        assert_eq!(
            Target::parse("http://my.test.io/my-path?q"),
            Ok(Target::Absolute { authority: "my.test.io", path: "/my-path", query: Some("q") })
        );
        assert_eq!(
            Target::parse("HTTP://h?x=1"),
            Ok(Target::Absolute { authority: "h", path: "/", query: Some("x=1") })
        );
        assert_eq!(Target::parse("*"), Ok(Target::Asterisk));
        for target in ["h:443", "ftp://a/", "a", "/a#b", "://a", "http:/a"] {
            assert!(Target::parse(target).is_err(), "{target}");
        }
    }
}
