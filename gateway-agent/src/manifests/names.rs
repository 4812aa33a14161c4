//! The forms of names in Kubernetes.
//!
//! **Invariant:** pure. The error is the message for the user.

/// A DNS label as of RFC 1123: what names a namespace, a Service or a port.
pub(super) fn label(text: &str) -> Result<(), String> {
    if text.len() > 63 {
        return Err(format!("a name of {} characters, at most 63 are allowed", text.len()));
    }
    if is_dns_label(text) {
        return Ok(());
    }
    Err(format!(
        "{text:?} is not a DNS label: lower-case letters, digits and '-', beginning and ending with a letter or digit"
    ))
}

/// A DNS subdomain as of RFC 1123: what names most objects.
pub(super) fn subdomain(text: &str) -> Result<(), String> {
    if text.len() > 253 {
        return Err(format!("a name of {} characters, at most 253 are allowed", text.len()));
    }
    if text.split('.').all(is_dns_label) {
        return Ok(());
    }
    Err(format!(
        "{text:?} is not a DNS subdomain: lower-case letters, digits, '-' and '.', each part beginning and ending with \
         a letter or digit"
    ))
}

/// The key of a label: a name, or `prefix/name`.
pub(super) fn qualified(text: &str) -> Result<(), String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if let Some(prefix) = prefix {
        subdomain(prefix)?;
    }
    if name.is_empty() {
        return Err("a key must have a name".into());
    }
    label_value(name)
}

pub(super) fn label_value(text: &str) -> Result<(), String> {
    if text.len() > 63 {
        return Err(format!("{} characters, at most 63 are allowed", text.len()));
    }
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    if bytes.iter().copied().all(inner) && ends(bytes.first()) && ends(bytes.last()) {
        return Ok(());
    }
    Err(format!(
        "{text:?} must be letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
    ))
}

/// The name of a port as a `targetPort` may hold it (RFC 6335).
pub(super) fn port(text: &str) -> Result<(), String> {
    let well_formed = is_dns_label(text)
        && text.len() <= 15
        && !text.contains("--")
        && text.bytes().any(|byte| byte.is_ascii_lowercase());
    if well_formed {
        return Ok(());
    }
    Err(format!(
        "{text:?} is not the name of a port: at most 15 lower-case letters, digits and single '-', at least one letter"
    ))
}

/// A key of a Secret or ConfigMap.
pub(super) fn data_key(text: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=253).contains(&text.len()) && text.bytes().all(allowed) && text != "." && !text.starts_with("..")
    {
        return Ok(());
    }
    Err(format!(
        "{text:?} is not a key: at most 253 letters, digits, '-', '_' and '.', not beginning with '..'"
    ))
}

fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::{data_key, label, label_value, port, qualified, subdomain};

    #[test]
    fn names_have_the_forms_that_the_api_server_accepts() {
        let long = "a".repeat(64);
        let check = |rule: fn(&str) -> Result<(), String>, good: &[&str], bad: &[&str]| {
            for text in good {
                assert_eq!(rule(text), Ok(()), "{text:?}");
            }
            for text in bad {
                assert!(rule(text).is_err(), "{text:?}");
            }
        };
        check(label, &["a", "a-b", "0a"], &["", "A", "-a", "a-", "a.b", "a_b", &long]);
        check(subdomain, &["a", "a.b-c", "0.1"], &["", "a..b", ".a", "a.", "a.-b", "A.b"]);
        check(qualified, &["a", "A_b", "x.y/A.b"], &["", "/a", "x/", "X/a", "a/b/c", "-a", &long]);
        check(label_value, &["", "a", "A-b_c.d"], &["-a", "a-", "a b", &long]);
        check(port, &["http", "a-1"], &["", "80", "a--b", "Http", "a-name-of-16-ch-"]);
        check(data_key, &["tls.crt", "_A-1", ".a"], &["", ".", "..", "..a", "a/b", "a b"]);
    }
}
