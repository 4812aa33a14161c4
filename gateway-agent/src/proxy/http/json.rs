//! JSON of the access log, appended to a buffer: members of one flat object.
//!
//! **Invariant:** whatever the bytes of a value are, what comes out is one line of valid JSON. Pure: bytes in, bytes
//! out; nothing is allocated but what the buffer lacks.

use std::io::Write as _;

/// What is logged of one value. A path can be as long as 16 KiB, and a log is not for keeping such.
const VALUE_BYTES_MAX: usize = 2048;

/// Appends `,"name":`. Names are ours and need no escapes.
fn name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// A member that is a text. What is not UTF-8 is replaced (U+FFFD), control characters are escaped.
pub(super) fn text(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    name(out, key);
    out.push(b'"');
    // Cut within a character, the rest of it is replaced.
    let shown = value.get(..VALUE_BYTES_MAX).unwrap_or(value);
    for chunk in shown.utf8_chunks() {
        escaped(out, chunk.valid());
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    if shown.len() < value.len() {
        out.extend_from_slice("\u{2026}".as_bytes());
    }
    out.push(b'"');
}

/// The same of what is displayed.
pub(super) fn display(out: &mut Vec<u8>, key: &str, value: impl std::fmt::Display) {
    struct Escaping<'a>(&'a mut Vec<u8>);
    impl std::fmt::Write for Escaping<'_> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            escaped(self.0, text);
            Ok(())
        }
    }
    name(out, key);
    out.push(b'"');
    // A buffer takes any text; what is displayed is ours and short.
    std::fmt::Write::write_fmt(&mut Escaping(out), format_args!("{value}")).ok();
    out.push(b'"');
}

/// A member that is a number.
pub(super) fn number(out: &mut Vec<u8>, key: &str, value: u64) {
    name(out, key);
    write!(out, "{value}").ok();
}

/// A number with three digits behind the point.
pub(super) fn thousandths(out: &mut Vec<u8>, key: &str, value: u64) {
    name(out, key);
    write!(out, "{}.{:03}", value / 1000, value % 1000).ok();
}

fn escaped(out: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if text.as_bytes().iter().all(is_plain) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    for one in text.chars() {
        match one {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            // Those above U+007F too: a terminal may obey them. All are below U+00A0.
            _ if one.is_control() => drop(write!(out, "\\u{:04x}", u32::from(one))),
            _ => out.extend_from_slice(one.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{VALUE_BYTES_MAX, display, number, text, thousandths};

    fn object(write: impl FnOnce(&mut Vec<u8>)) -> serde_json::Value {
        let mut out = b"{\"first\":0".to_vec();
        write(&mut out);
        out.push(b'}');
        assert!(!out.contains(&b'\n'), "{}", out.escape_ascii());
        serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{error}: {}", out.escape_ascii()))
    }

    #[test]
    fn every_byte_is_escaped_as_it_must_be() {
        for byte in 0..=255_u8 {
            let value = object(|out| text(out, "a", &[b'x', byte, b'y']));
            let expected = String::from_utf8_lossy(&[b'x', byte, b'y']).into_owned();
            assert_eq!(value["a"], expected, "{byte}");
        }
        let value = object(|out| text(out, "a", "\u{85}\u{2028}ä€𝄞\"\\\r\n".as_bytes()));
        assert_eq!(value["a"], "\u{85}\u{2028}ä€𝄞\"\\\r\n");
    }

    #[test]
    fn long_values_are_cut_visibly() {
        let value = object(|out| text(out, "a", "ä".repeat(VALUE_BYTES_MAX).as_bytes()));
        let shown = value["a"].as_str().unwrap();
        assert!(shown.ends_with("ä…") && shown.len() == VALUE_BYTES_MAX + 3, "{}", shown.len());
    }

    #[test]
    fn numbers_and_displayed_values() {
        let value = object(|out| {
            number(out, "n", u64::MAX);
            thousandths(out, "t", 12_034);
            display(out, "d", "a\"b\n");
        });
        assert_eq!(value["n"], u64::MAX);
        assert_eq!(value["t"].to_string(), "12.034");
        assert_eq!(value["d"], "a\"b\n");
    }

    proptest! {
        #[test]
        fn any_bytes_come_out_as_lossy_text(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let value = object(|out| text(out, "a", &bytes));
            prop_assert_eq!(value["a"].as_str().unwrap(), String::from_utf8_lossy(&bytes));
        }
    }
}
