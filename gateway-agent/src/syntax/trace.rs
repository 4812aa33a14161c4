//! W3C Trace Context, as the Recommendation of 2021 has it: which values of `traceparent` and `tracestate` are
//! well-formed. And which values of `X-Request-Id` may be passed on, which no standard says.

/// A trace's id: hexadecimal digits.
pub type TraceId = [u8; 32];

/// Members of a `tracestate` (section 3.3.1.1: "a maximum of 32 list-members").
const MEMBERS_MAX: usize = 32;

/// Long enough for two UUIDs and a prefix, and short enough to be in every line of every log.
pub const REQUEST_ID_LEN_MAX: usize = 128;

/// The trace id of a well-formed `traceparent` (section 3.2).
pub fn trace_id(traceparent: &[u8]) -> Option<TraceId> {
    // version "-" trace-id "-" parent-id "-" trace-flags
    const LEN: usize = 55;
    let (known, rest) = traceparent.split_at_checked(LEN)?;
    let part = |from: usize, to: usize| known.get(from..to).filter(|part| part.iter().all(is_hex));
    let (version, trace_id, parent_id) = (part(0, 2)?, part(3, 35)?, part(36, 52)?);
    part(53, 55)?;
    let has_dashes = [2, 35, 52].into_iter().all(|at| known.get(at) == Some(&b'-'));
    // Version 0 is no longer; later ones may go on behind another dash.
    let may_end = rest.is_empty() || version != b"00" && rest.first() == Some(&b'-');
    let is_zero = |part: &[u8]| part.iter().all(|digit| *digit == b'0');
    if version == b"ff" || !has_dashes || !may_end || is_zero(trace_id) || is_zero(parent_id) {
        return None;
    }
    trace_id.try_into().ok()
}

/// Digits in lower case only.
fn is_hex(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Whether the `tracestate` fields of a message, in their order, are one well-formed list (section 3.3).
pub fn is_state<'a>(values: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut keys: [&[u8]; MEMBERS_MAX] = [&[]; MEMBERS_MAX];
    let mut n_members = 0;
    let trimmed = |member: &'a [u8]| member.trim_ascii();
    for member in values.flat_map(|value| value.split(|byte| *byte == b',')).map(trimmed) {
        // "Empty list members are allowed".
        if member.is_empty() {
            continue;
        }
        let Some(equals) = member.iter().position(|byte| *byte == b'=') else { return false };
        let (key, value) = member.split_at(equals);
        let value = value.get(1..).unwrap_or_default();
        let is_known = keys.iter().take(n_members).any(|known| *known == key);
        let Some(place) = keys.get_mut(n_members) else { return false };
        if is_known || !is_key(key) || !is_value(value) {
            return false;
        }
        *place = key;
        n_members += 1;
    }
    true
}

/// `simple-key` or `multi-tenant-key`.
fn is_key(key: &[u8]) -> bool {
    let are_key_bytes = |part: &[u8]| {
        part.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/'))
    };
    let starts_with_letter = |part: &[u8]| part.first().is_some_and(u8::is_ascii_lowercase);
    match key.iter().position(|byte| *byte == b'@') {
        None => key.len() <= 256 && starts_with_letter(key) && are_key_bytes(key),
        Some(at) => {
            let (tenant, system) = key.split_at(at);
            let system = system.get(1..).unwrap_or_default();
            let is_tenant = matches!(tenant.first(), Some(b'a'..=b'z' | b'0'..=b'9'))
                && tenant.len() <= 241
                && are_key_bytes(tenant);
            is_tenant && system.len() <= 14 && starts_with_letter(system) && are_key_bytes(system)
        }
    }
}

fn is_value(value: &[u8]) -> bool {
    // Both ends were trimmed, so that it does not end in a space.
    let is_value_byte = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    !value.is_empty() && value.len() <= 256 && value.iter().all(is_value_byte)
}

/// Whether an `X-Request-Id` may be passed on and logged: what ids are made of, and nothing that a log or a shell
/// would take for something else.
pub fn is_request_id(value: &[u8]) -> bool {
    let is_id_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=:@".contains(byte);
    !value.is_empty() && value.len() <= REQUEST_ID_LEN_MAX && value.iter().all(is_id_byte)
}

#[cfg(test)]
mod tests {
    use super::{REQUEST_ID_LEN_MAX, is_request_id, is_state, trace_id};

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    // The examples of sections 3.2.2 and 3.2.4, and what they say of each part.
    #[test]
    fn trace_parents_are_read_by_the_recommendation() {
        for (good, id) in [
            (format!("00-{TRACE}-00f067aa0ba902b7-01"), TRACE),
            (format!("00-{TRACE}-00f067aa0ba902b7-00"), TRACE),
            (format!("00-{TRACE}-00f067aa0ba902b7-ff"), TRACE),
            (format!("01-{TRACE}-00f067aa0ba902b7-01"), TRACE),
            (format!("cc-{TRACE}-00f067aa0ba902b7-01-what-the-future-will-be-like"), TRACE),
        ] {
            assert_eq!(trace_id(good.as_bytes()).as_ref().map(|id| &id[..]), Some(id.as_bytes()), "{good}");
        }
        for bad in [
            String::new(),
            "00".into(),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-1"),
            format!("00-{TRACE}-00f067aa0ba902b7-011"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("cc-{TRACE}-00f067aa0ba902b7-01.more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("0-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-00F067AA0BA902B7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-0x"),
            format!("00_{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}_00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7_01"),
            format!(" 00-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-01, 00-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-ä{}-00f067aa0ba902b7-01", &TRACE[2..]),
        ] {
            assert_eq!(trace_id(bad.as_bytes()), None, "{bad}");
        }
    }

    fn state(values: &[&str]) -> bool {
        is_state(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn trace_states_are_lists_of_unique_keys() {
        let (k256, v256) = ("k".repeat(256), "v".repeat(256));
        let many: Vec<String> = (0..32).map(|n| format!("k{n}=v")).collect();
        for good in [
            &["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"][..],
            &["rojo=00f067aa0ba902b7 ,\tcongo=t61rcWkgMzE"],
            &["rojo=1", "congo=2"],
            &["fw529a3039@dt=FfAsb;1", ""],
            &["0tenant@system=a b"],
            &["a=1,,b=2,"],
            &[&format!("{k256}={v256}")],
            &[&many.join(",")],
            &["a_-*/9=!\"#$%&'()*+-./:;<>?@[\\]^_`{|}~"],
        ] {
            assert!(state(good), "{good:?}");
        }
        for bad in [
            &["rojo"][..],
            &["=1"],
            &["rojo="],
            &["Rojo=1"],
            &["1rojo=1"],
            &["ro jo=1"],
            &["rojo=1=2"],
            &["rojo=ä"],
            &["a=1,a=2"],
            &["a=1", "a=2"],
            &["a@=1"],
            &["@a=1"],
            &["a@b@c=1"],
            &["a@abcdefghijklmno=1"],
            &[&format!("k{k256}=1")],
            &[&format!("k=v{v256}")],
            &[&many.join(","), "k32=v"],
        ] {
            assert!(!state(bad), "{bad:?}");
        }
    }

    #[test]
    fn request_ids_are_short_and_plain() {
        let longest = "a".repeat(REQUEST_ID_LEN_MAX);
        for good in ["a", "0b5c4d3e-2f1a-4b3c-8d7e-9f0a1b2c3d4e", "Root=1-67891233:abc/d+e=_~@.x", &longest] {
            assert!(is_request_id(good.as_bytes()), "{good}");
        }
        for bad in ["", "a b", "a,b", "a\"b", "a\\b", "a;b", "a\x7f", "ä", "$(x)", &format!("{longest}a")] {
            assert!(!is_request_id(bad.as_bytes()), "{bad}");
        }
    }
}
