//! Hosts: what is matched against hostnames of listeners and routes. Does not change what is forwarded.

use super::error::HeadError;
use super::limits::AUTHORITY_BYTES_MAX;

/// Writes the name in `authority` (`host[:port]`) to `out` in the form that is matched: lower case, without port,
/// without a trailing dot; an IPv6 literal keeps its brackets and thus matches no hostname but the empty one.
pub fn normalise(authority: &[u8], out: &mut String) -> Result<(), HeadError> {
    out.clear();
    if authority.len() > AUTHORITY_BYTES_MAX {
        return Err(HeadError::Host);
    }
    let (host, rest) = if authority.first() == Some(&b'[') {
        let end = memchr::memchr(b']', authority).ok_or(HeadError::Host)?;
        authority.split_at(end + 1)
    } else {
        let end = memchr::memchr(b':', authority).unwrap_or(authority.len());
        authority.split_at(end)
    };
    check_port(rest)?;
    if host.first() == Some(&b'[') {
        let literal = host.get(1..host.len().saturating_sub(1)).unwrap_or_default();
        str::from_utf8(literal)
            .ok()
            .and_then(|text| text.parse::<std::net::Ipv6Addr>().ok())
            .ok_or(HeadError::Host)?;
    } else if !host.iter().all(|byte| is_name_byte(*byte)) {
        return Err(HeadError::Host);
    }
    let host = host.strip_suffix(b".").unwrap_or(host);
    // With more dots at its end a name is none, and some readers drop them all.
    if host.is_empty() || host.ends_with(b".") {
        return Err(HeadError::Host);
    }
    out.extend(host.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
    Ok(())
}

/// `:` and digits up to 65535, or nothing; RFC 3986 section 3.2.3 allows the colon alone.
fn check_port(rest: &[u8]) -> Result<(), HeadError> {
    let Some(digits) = rest.strip_prefix(b":") else {
        return if rest.is_empty() { Ok(()) } else { Err(HeadError::Host) };
    };
    let mut port = 0_u32;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(HeadError::Host);
        }
        port = port * 10 + u32::from(digit - b'0');
        if port > u32::from(u16::MAX) {
            return Err(HeadError::Host);
        }
    }
    Ok(())
}

/// Of RFC 3986's `reg-name` only what names of the field hold: underscores are common, `~` and `+` harmless. The rest
/// (commas, quotes, `@`, `/`, escapes, which some decode) has no use but to be read in two ways.
const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+')
}

#[cfg(test)]
mod tests {
    use super::normalise;

    // O23
    #[test]
    fn case_port_and_trailing_dot_do_not_matter() {
        for (authority, expected) in [
            ("helloworld.sample.com:8082", "helloworld.sample.com"),
            ("webservice.svc.cluster.local.:8080", "webservice.svc.cluster.local"),
            ("name.", "name"),
            ("APP.Example.COM", "app.example.com"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("[::1]", "[::1]"),
            ("a_b.example:", "a_b.example"),
            ("10.0.0.1:65535", "10.0.0.1"),
        ] {
            let mut host = String::new();
            assert_eq!(normalise(authority.as_bytes(), &mut host), Ok(()), "{authority}");
            assert_eq!(host, expected);
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for authority in [
            "", ".", ":80", "a:65536", "a:+1", "a:8a", "a b", "a/b", "user@a", "a,b", "a\"b", "[::1",
            "[::1]x", "[a]", "[]", "a:1:2", "[::1].", "a..", "..", "a%41", "%",
        ] {
            assert!(normalise(authority.as_bytes(), &mut String::new()).is_err(), "{authority}");
        }
        assert!(normalise("a".repeat(400).as_bytes(), &mut String::new()).is_err());
    }
}
