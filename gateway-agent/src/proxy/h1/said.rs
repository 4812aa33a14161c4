//! What this proxy says of the client and of the request's way to it.
//!
//! What the client itself says counts only where it is trusted: then `X-Forwarded-For` and `Forwarded` are added to,
//! and the rest is passed on as it came. Fields of a style that is not chosen are never passed on: nothing would be
//! added to them, and a server would take them for the whole way.

use std::io::Write as _;

use super::encode::Forwarded;
use crate::syntax::field::is_token;

/// What a client says: names and values of the fields of [`super::field::Meaning::Forwarded`].
type Claim<'a> = (&'a [u8], &'a [u8]);

/// Where fields are said: in a head that is being written, or in a message as a value.
pub trait Lines {
    /// One field; `write` appends its value.
    fn line(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>));
}

impl Lines for Vec<u8> {
    fn line(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        self.extend_from_slice(name.as_bytes());
        self.extend_from_slice(b": ");
        write(self);
        self.extend_from_slice(b"\r\n");
    }
}

fn field(out: &mut impl Lines, name: &str, value: &[u8]) {
    out.line(name, |out| out.extend_from_slice(value));
}

/// Appends them all. `authority`: that the client asked for. `is_said`: whether a field is not replaced by the route's
/// filters. `claims`: of a trusted client, else nothing.
pub fn append<'a>(
    forwarded: Forwarded<'_>,
    authority: Option<&str>,
    claims: impl Iterator<Item = Claim<'a>> + Clone,
    is_said: impl Fn(&str) -> bool,
    out: &mut impl Lines,
) {
    let Forwarded { client, proto, port, request_id, style, .. } = forwarded;
    if style.has_x_forwarded() {
        if is_said("X-Forwarded-For") {
            let claimed = claims_of(claims.clone(), "X-Forwarded-For");
            list("X-Forwarded-For", claimed, |out| out.extend_from_slice(client.as_bytes()), out);
        }
        if is_said("X-Forwarded-Proto") && !passed(claims.clone(), "X-Forwarded-Proto", out) {
            field(out, "X-Forwarded-Proto", proto.as_bytes());
        }
        if is_said("X-Forwarded-Host")
            && !passed(claims.clone(), "X-Forwarded-Host", out)
            && let Some(authority) = authority
        {
            field(out, "X-Forwarded-Host", authority.as_bytes());
        }
        if is_said("X-Forwarded-Port") && !passed(claims.clone(), "X-Forwarded-Port", out) && port != 0 {
            // A buffer takes any text.
            out.line("X-Forwarded-Port", |out| drop(write!(out, "{port}")));
        }
        for (name, value) in claims.clone().filter(|(name, _)| is_further(name)) {
            if let Ok(name) = str::from_utf8(name)
                && is_said(name)
            {
                field(out, name, value);
            }
        }
    }
    if style.has_forwarded() && is_said("Forwarded") {
        let claimed = claims_of(claims, "Forwarded");
        list("Forwarded", claimed, |out| element(forwarded, authority, out), out);
    }
    if !request_id.is_empty() && is_said("X-Request-Id") {
        field(out, "X-Request-Id", request_id.as_bytes());
    }
}

/// Values of the fields called `name`, in their order.
fn claims_of<'a>(
    claims: impl Iterator<Item = Claim<'a>>,
    name: &'static str,
) -> impl Iterator<Item = &'a [u8]> {
    let named = claims.filter(|(claimed, _)| claimed.eq_ignore_ascii_case(name.as_bytes()));
    named.map(|(_, value)| value).filter(|value| !value.is_empty())
}

/// One line: what there was, then what `write` adds.
fn list<'a>(
    name: &str,
    before: impl Iterator<Item = &'a [u8]>,
    write: impl FnOnce(&mut Vec<u8>),
    out: &mut impl Lines,
) {
    out.line(name, |out| {
        for value in before {
            out.extend_from_slice(value);
            out.extend_from_slice(b", ");
        }
        write(out);
    });
}

/// Passes on the first field called `name`; false where there is none. The first is the one nearest to the client, and
/// of two that differ servers would take one or the other.
fn passed<'a>(claims: impl Iterator<Item = Claim<'a>>, name: &'static str, out: &mut impl Lines) -> bool {
    let first = claims_of(claims, name).next();
    if let Some(value) = first {
        field(out, name, value);
    }
    first.is_some()
}

/// Others of the kind, such as `X-Forwarded-Prefix` and `X-Real-IP`; only as they are spelled, not as servers like CGI
/// read them.
fn is_further(name: &[u8]) -> bool {
    const WRITTEN: [&[u8]; 4] =
        [b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port"];
    let has_start = |start: &[u8]| name.get(..start.len()).is_some_and(|own| own.eq_ignore_ascii_case(start));
    let is_one = has_start(b"x-forwarded-") || name.eq_ignore_ascii_case(b"x-real-ip");
    is_one && !name.contains(&b'_') && !WRITTEN.iter().any(|written| name.eq_ignore_ascii_case(written))
}

/// One `forwarded-element` (RFC 7239 section 4).
fn element(forwarded: Forwarded<'_>, authority: Option<&str>, out: &mut Vec<u8>) {
    let Forwarded { client, proto, .. } = forwarded;
    out.extend_from_slice(b"for=");
    if client.contains(':') {
        // Section 6: IPv6 in brackets, and therefore quoted.
        write!(out, "\"[{client}]\"").ok();
    } else {
        out.extend_from_slice(client.as_bytes());
    }
    if let Some(authority) = authority.filter(|authority| !authority.is_empty()) {
        out.extend_from_slice(b";host=");
        if is_token(authority.as_bytes()) {
            out.extend_from_slice(authority.as_bytes());
        } else {
            out.push(b'"');
            for byte in authority.bytes() {
                if matches!(byte, b'"' | b'\\') {
                    out.push(b'\\');
                }
                out.push(byte);
            }
            out.push(b'"');
        }
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(proto.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::{Forwarded, append};
    use crate::snapshot::ForwardedStyle;

    fn said(client: &str, style: ForwardedStyle, claims: &[(&str, &str)]) -> String {
        let forwarded = Forwarded {
            client,
            proto: "https",
            port: 443,
            local: "198.51.100.1:8443",
            request_id: "id",
            style,
            is_trusted: !claims.is_empty(),
        };
        let claims = claims.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let mut out = Vec::new();
        append(forwarded, Some("h.example:8443"), claims, |_| true, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_styles_say_the_same() {
        let x = "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: h.example:8443\r\n\
                 X-Forwarded-Port: 443\r\n";
        let standard = "Forwarded: for=192.0.2.1;host=\"h.example:8443\";proto=https\r\n";
        let id = "X-Request-Id: id\r\n";
        let of = |style| said("192.0.2.1", style, &[]);
        assert_eq!(of(ForwardedStyle::XForwarded), format!("{x}{id}"));
        assert_eq!(of(ForwardedStyle::Forwarded), format!("{standard}{id}"));
        assert_eq!(of(ForwardedStyle::Both), format!("{x}{standard}{id}"));
        assert_eq!(of(ForwardedStyle::None), id);
        let v6 = said("2001:db8::1", ForwardedStyle::Forwarded, &[]);
        assert!(v6.starts_with("Forwarded: for=\"[2001:db8::1]\";host="), "{v6}");
    }

    #[test]
    fn what_a_trusted_client_says_is_added_to_or_passed_on() {
        let claims = [
            ("x-forwarded-for", "203.0.113.7"),
            ("X-Forwarded-For", "10.1.1.1, 10.1.1.2"),
            ("X-Forwarded-Proto", "http"),
            ("x-forwarded-proto", "gopher"),
            ("X-Forwarded-Prefix", "/shop"),
            ("X_Forwarded_Prefix", "/admin"),
            ("X-Real-IP", "203.0.113.7"),
            ("Forwarded", "for=203.0.113.7"),
            ("X-Forwarded-Host", ""),
        ];
        assert_eq!(
            said("10.9.9.9", ForwardedStyle::XForwarded, &claims),
            "X-Forwarded-For: 203.0.113.7, 10.1.1.1, 10.1.1.2, 10.9.9.9\r\nX-Forwarded-Proto: http\r\n\
             X-Forwarded-Host: h.example:8443\r\nX-Forwarded-Port: 443\r\nX-Forwarded-Prefix: /shop\r\n\
             X-Real-IP: 203.0.113.7\r\nX-Request-Id: id\r\n"
        );
        assert_eq!(
            said("10.9.9.9", ForwardedStyle::Forwarded, &claims),
            "Forwarded: for=203.0.113.7, for=10.9.9.9;host=\"h.example:8443\";proto=https\r\nX-Request-Id: id\r\n"
        );
        assert_eq!(said("10.9.9.9", ForwardedStyle::None, &claims), "X-Request-Id: id\r\n");
    }
}
