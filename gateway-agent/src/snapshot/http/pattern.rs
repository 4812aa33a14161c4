//! Regular expressions of routes: RE2-like, matched against the whole text, in time linear in it.
//!
//! **Invariant:** what one expression may cost is bounded when it is made; nothing is compiled while requests come.

use std::fmt;
use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};

/// One compiled expression, behind one pointer. Equal to another of the same text.
#[derive(Clone)]
pub struct Pattern(Arc<Compiled>);

struct Compiled {
    text: Box<str>,
    regex: Regex,
}

/// Bytes of an expression. What the API allows for the value of a header match.
const PATTERN_BYTES_MAX: usize = 4096;

/// Bytes that an expression may compile to: some 1,000 states, well beyond what paths and headers are described by.
/// With it a look costs at most that many steps per byte of text.
const PROGRAM_BYTES_MAX: usize = 64 * 1024;

/// What looks may remember between each other, per thread; beyond it they go on slower, in linear time still.
const CACHE_BYTES_MAX: usize = 256 * 1024;

/// Nesting of groups; the parser recurses.
const NESTING_MAX: u32 = 32;

/// Bytes of text that are looked at. A longer one does not match: with `PROGRAM_BYTES_MAX` this bounds the time of a look.
const TEXT_BYTES_MAX: usize = 8 * 1024;

impl Pattern {
    /// The error says what is wrong with the expression.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("longer than {PATTERN_BYTES_MAX} bytes"));
        }
        // By itself first: `a)(b` is none, though it is one in parentheses.
        build(text)?;
        Ok(Self(Arc::new(Compiled { text: text.into(), regex: build(&format!("^(?:{text})$"))? })))
    }

    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Whether the whole of `text` is described.
    pub fn matches(&self, text: &[u8]) -> bool {
        text.len() <= TEXT_BYTES_MAX && self.0.regex.is_match(text)
    }
}

/// Classes are those of ASCII, so that `\d` is ten digits and what is matched need not be UTF-8.
fn build(text: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(text);
    builder
        .unicode(false)
        .size_limit(PROGRAM_BYTES_MAX)
        .dfa_size_limit(CACHE_BYTES_MAX)
        .nest_limit(NESTING_MAX);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "too large".to_owned(),
        // The last line is what is wrong, after a drawing of where.
        other => {
            other.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    })
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.0.text).finish()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for Pattern {}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn whole_text_must_be_described() {
        for (pattern, text, expected) in [
            ("/v[0-9]+/items", "/v12/items", true),
            ("/v[0-9]+/items", "/v12/items/1", false),
            ("/v[0-9]+/items", "/x/v12/items", false),
            ("/a|/b", "/b", true),
            ("/a|/b", "/a/b", false),
            ("(?i)chrome.*", "Chrome/1.0", true),
            ("\\d+", "12", true),
            ("\\d+", "1\u{663}", false),
            ("caf\u{e9}", "caf\u{e9}", true),
            ("", "", true),
            ("a$|b", "b", true),
            (".*", "a\nb", false),
        ] {
            assert_eq!(Pattern::new(pattern).unwrap().matches(text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(Pattern::new("(?s-u).*").unwrap().matches(&[0xff, b'a']));
    }

    #[test]
    fn what_is_none_or_too_large_is_refused() {
        for pattern in
            ["(", "a)(b", "[", "*", "(?P<x", "(?=a)", "\\1", "(a{1,1000}){1,1000}", "[a-z]{100000}"]
        {
            assert!(Pattern::new(pattern).is_err(), "{pattern}");
        }
        assert_eq!(Pattern::new("(a{1,1000}){1,1000}").unwrap_err(), "too large");
        assert!(Pattern::new(&"(".repeat(1000)).is_err());
        assert!(Pattern::new(&"a".repeat(5000)).is_err());
    }

    #[test]
    fn nothing_takes_more_than_linear_time() {
        let pattern = Pattern::new("(a|aa)+(b|a?)*c").unwrap();
        assert!(!pattern.matches("a".repeat(8192).as_bytes()));
        assert!(!pattern.matches(&[b'a'; 8193]));
    }
}
