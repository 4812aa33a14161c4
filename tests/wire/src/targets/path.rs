//! Paths: the normal form is one, and means the same to every reader.

use crate::syntax::hex_value;
use crate::syntax::path::{escaped, normalise};

pub(super) fn run(bytes: &[u8]) {
    let Ok(path) = str::from_utf8(bytes) else { return };
    configured(path);
    // What the parser of request lines lets through.
    if bytes.iter().any(|byte| byte.is_ascii_control() || matches!(byte, b' ' | b'?')) {
        return;
    }
    let mut out = String::from("of an earlier request");
    let Ok(has_changed) = normalise(path, &mut out) else { return };
    let normal = if has_changed { out } else { path.to_owned() };
    assert_eq!(has_changed, normal != path);
    is_sound(&normal);
    let mut again = String::new();
    assert_eq!(normalise(&normal, &mut again), Ok(false), "{path:?} {normal:?}");
    // Read as applications may read it: nothing climbs, also where `%2F` and `%5C` separate and parameters are cut off.
    let decoded = decode(&normal);
    for segment in decoded.split(|byte| matches!(byte, b'/' | b'\\')) {
        let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        assert!(!matches!(name, b"." | b".."), "{path:?} {normal:?}");
    }
    assert!(!decoded.contains(&0), "{path:?}");
    // Dot segments apart, nothing else is lost or added.
    if !decode(path).windows(2).any(|pair| pair == b"/.") {
        assert_eq!(decoded, decode(path), "{path:?}");
    }
}

/// As manifests give paths: any text.
fn configured(text: &str) {
    let path = escaped(text);
    assert!(path.is_empty() || path.starts_with('/'));
    assert!(path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#\\\"<>".contains(&byte)), "{path:?}");
    assert_eq!(escaped(&path), path);
    let given = if text.starts_with('/') || text.is_empty() { text.to_owned() } else { format!("/{text}") };
    assert_eq!(decode(&path), decode(&given), "{text:?}");
}

fn is_sound(path: &str) {
    assert!(path.starts_with('/') && path.is_ascii(), "{path:?}");
    assert!(!path.contains(['\\', '#']), "{path:?}");
    assert!(!path.split('/').any(|segment| matches!(segment, "." | "..")), "{path:?}");
}

/// Broken escapes stand for themselves.
fn decode(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if let (b'%', [high, low, tail @ ..]) = (first, behind)
            && let (Some(high), Some(low)) = (hex_value(*high), hex_value(*low))
        {
            bytes.push(high << 4 | low);
            rest = tail;
        } else {
            bytes.push(*first);
        }
    }
    bytes
}
