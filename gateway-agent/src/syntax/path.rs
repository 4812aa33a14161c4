//! The normal form of paths.
//!
//! One normal form is made, matched and forwarded, of requests as of routes, so that the server behind cannot see
//! another path than the one that chose it:
//! - escapes of unreserved characters are decoded, other escapes stay as they came (RFC 3986 section 6.2.2.2);
//! - bytes outside ASCII are escaped;
//! - `.` and `..` segments are removed (section 5.2.4); none climbs above the root;
//! - refused are: broken escapes, an escaped NUL, `\` and `#`, a `.` or `..` segment that comes to light only for a
//!   reader that decodes `%2F`, `%5C` or `%3B` or that cuts `;parameters` off;
//! - `%2F` itself stays and separates nothing; empty segments (`//`) stay: both are meaningful to applications.

use super::hex_value;

/// A path that has no normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a path that every server reads alike")]
pub struct BadPath;

/// Writes the normal form of `path` to `out`. False: `path` is in normal form already and `out` is left empty.
pub fn normalise(path: &str, out: &mut String) -> Result<bool, BadPath> {
    out.clear();
    let mut previous = 0;
    let mut is_plain = true;
    for byte in path.bytes() {
        is_plain &= !matches!(byte, b'%' | b'\\' | b'#' | 0x80..) && !(byte == b'.' && previous == b'/');
        previous = byte;
    }
    if is_plain && path.starts_with('/') {
        return Ok(false);
    }
    decode(path, out)?;
    if !out.starts_with('/') {
        return Err(BadPath);
    }
    remove_dot_segments(out);
    if hides_dot_segment(out) {
        return Err(BadPath);
    }
    Ok(out != path)
}

/// `path` as a URL can hold it: begins with `/` unless it is empty; what is no path character is escaped, `?` and `#`
/// among them. Escapes stay as they are.
pub fn escaped(path: &str) -> String {
    let mut out = String::with_capacity(path.len() + 1);
    if !path.is_empty() && !path.starts_with('/') {
        out.push('/');
    }
    for (at, byte) in path.bytes().enumerate() {
        let mut following = path.bytes().skip(at + 1);
        let is_kept = match byte {
            b'%' => {
                following.next().and_then(hex_value).is_some()
                    && following.next().and_then(hex_value).is_some()
            }
            _ => is_unreserved(byte) || b"/!$&'()*+,;=:@".contains(&byte),
        };
        if is_kept {
            out.push(char::from(byte));
        } else {
            out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    out
}

fn decode(path: &str, out: &mut String) -> Result<(), BadPath> {
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let (Some(high), Some(low)) = (bytes.next(), bytes.next()) else {
                    return Err(BadPath);
                };
                let decoded = hex_value(high).zip(hex_value(low)).map(|(high, low)| high << 4 | low);
                match decoded.ok_or(BadPath)? {
                    0 => return Err(BadPath),
                    value if is_unreserved(value) => out.push(char::from(value)),
                    _ => out.extend(['%', char::from(high), char::from(low)]),
                }
            }
            b'\\' | b'#' => return Err(BadPath),
            0x80.. => out.extend(['%', digit(byte >> 4), digit(byte & 15)]),
            _ => out.push(char::from(byte)),
        }
    }
    Ok(())
}

/// RFC 3986 section 5.2.4, in one pass. `path` is ASCII and begins with `/`.
fn remove_dot_segments(path: &mut String) {
    // Only a segment that begins with a dot can be one.
    if !path.contains("/.") {
        return;
    }
    let mut bytes = std::mem::take(path).into_bytes();
    let mut kept = 0;
    let mut at = 0;
    while at < bytes.len() {
        let rest = bytes.get(at + 1..).unwrap_or_default();
        let end = at + 1 + memchr::memchr(b'/', rest).unwrap_or(rest.len());
        let is_last = end == bytes.len();
        let segment = bytes.get(at + 1..end).unwrap_or_default();
        if segment == b"." || segment == b".." {
            if segment == b".." {
                let before = bytes.get(..kept).unwrap_or_default();
                kept = memchr::memrchr(b'/', before).unwrap_or(0);
            }
            if is_last && let Some(slash) = bytes.get_mut(kept) {
                *slash = b'/';
                kept += 1;
            }
        } else {
            bytes.copy_within(at..end, kept);
            kept += end - at;
        }
        at = end;
    }
    bytes.truncate(kept);
    *path = String::from_utf8(bytes).unwrap_or_default();
}

/// Whether a reader that takes `%2F`, `%5C` as separators, or drops `;...`, would find a dot segment.
fn hides_dot_segment(path: &str) -> bool {
    let mut rest = path;
    while let Some(dot) = rest.find('.') {
        let (before, after) = rest.split_at(dot);
        let begins = ends_with_separator(before);
        let dots = after.bytes().take_while(|byte| *byte == b'.').count();
        let tail = after.get(dots..).unwrap_or_default();
        if begins && dots <= 2 && (tail.is_empty() || begins_parameters(tail) || begins_with_separator(tail))
        {
            return true;
        }
        rest = tail;
    }
    false
}

fn ends_with_separator(text: &str) -> bool {
    let last = text.as_bytes().last_chunk::<3>();
    text.ends_with('/') || last.is_some_and(|escape| is_escaped_separator(*escape))
}

fn begins_with_separator(text: &str) -> bool {
    let first = text.as_bytes().first_chunk::<3>();
    text.starts_with('/') || first.is_some_and(|escape| is_escaped_separator(*escape))
}

/// Escaped too: a reader that decodes first cuts there as well.
fn begins_parameters(text: &str) -> bool {
    let first = text.as_bytes().first_chunk::<3>();
    text.starts_with(';') || first.is_some_and(|escape| escape.eq_ignore_ascii_case(b"%3b"))
}

fn is_escaped_separator(escape: [u8; 3]) -> bool {
    escape.eq_ignore_ascii_case(b"%2f") || escape.eq_ignore_ascii_case(b"%5c")
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).unwrap_or('0').to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{escaped, normalise};

    fn normal(path: &str) -> Option<String> {
        let mut out = String::new();
        let changed = normalise(path, &mut out).ok()?;
        Some(if changed { out } else { path.to_owned() })
    }

    // O24
    #[test]
    fn paths_have_one_normal_form() {
        for (path, expected) in [
            ("/", "/"),
            ("/alpha/api/../../beta/api/echo", "/beta/api/echo"),
            ("/alpha/api/%2e%2e/%2E./beta", "/beta"),
            ("/%61lpha", "/alpha"),
            ("/alpha/./x", "/alpha/x"),
            ("/alpha/.", "/alpha/"),
            ("/alpha/..", "/"),
            ("/..", "/"),
            ("/../../etc", "/etc"),
            ("/a/b/../../../c", "/c"),
            ("/a//../b", "/a/b"),
            ("//a", "//a"),
            ("/.hidden", "/.hidden"),
            ("/...", "/..."),
            ("/a/..b/c", "/a/..b/c"),
            ("/@scope%2Fname", "/@scope%2Fname"),
            ("/a%20b", "/a%20b"),
            ("/%e4%B8", "/%e4%B8"),
            ("/é", "/%C3%A9"),
            ("/a;b=c/d", "/a;b=c/d"),
            ("/a.;b", "/a.;b"),
        ] {
            assert_eq!(normal(path).as_deref(), Some(expected), "{path}");
        }
    }

    // O24
    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for path in [
            "/alpha%00",
            "/%",
            "/%2",
            "/%zz",
            "/a\\b",
            "/a#b",
            "/a/..;/b",
            "/a/.;x/b",
            "/a/..%3Bx/b",
            "/a%2f..%3b",
            "/a%2f..%2fb",
            "/a/..%2fb",
            "/a%5C../b",
            "/a%2f..",
            "/a%2F%2e%2e/b",
            "/a/..%5cb",
            "/a%2f.",
            "",
            "a",
            "%2Fa",
        ] {
            assert_eq!(normal(path), None, "{path}");
        }
    }

    #[test]
    fn escaped_paths_hold_path_characters_only() {
        for (path, expected) in [
            ("", ""),
            ("/", "/"),
            ("a", "/a"),
            ("/a b?c#d", "/a%20b%3Fc%23d"),
            ("/%41%4g%", "/%41%254g%25"),
            ("/é\r\n", "/%C3%A9%0D%0A"),
            ("/a;b=c:d@e,(f)", "/a;b=c:d@e,(f)"),
        ] {
            assert_eq!(escaped(path), expected, "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn normal_form_is_stable_and_free_of_dot_segments(path in "/[a./%25eE2fF;]{0,24}") {
            if let Some(once) = normal(&path) {
                prop_assert_eq!(normal(&once), Some(once.clone()), "{}", path);
                prop_assert!(!once.split('/').any(|segment| segment == "." || segment == ".."));
            }
        }
    }
}
