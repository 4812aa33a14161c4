//! Hosts: one name for all spellings of it.

use crate::proxy::h1::host::normalise;

pub(super) fn run(authority: &[u8]) {
    let mut host = String::from("of an earlier request");
    if normalise(authority, &mut host).is_err() {
        return;
    }
    assert!(!host.is_empty() && host.is_ascii());
    assert!(
        !host.ends_with('.') && !host.contains(['/', '@', ',', ' ', '\t', '\r', '\n', '\0', '#', '?', '"']),
        "{host:?}"
    );
    assert_eq!(host, host.to_ascii_lowercase());
    let same = |authority: &str| {
        let mut again = String::new();
        assert_eq!(normalise(authority.as_bytes(), &mut again), Ok(()), "{authority:?}");
        assert_eq!(again, host, "{authority:?}");
    };
    same(&host);
    same(&host.to_ascii_uppercase());
    if host.len() < 300 {
        same(&format!("{host}:8080"));
        if !host.starts_with('[') {
            same(&format!("{host}.:8080"));
        }
    }
    // The name is what comes before a colon that is not inside brackets.
    assert!(host.starts_with('[') || !host.contains(':'), "{host:?}");
}
