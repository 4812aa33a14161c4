//! Query parameters as routes match them. Decodes while comparing; nothing is copied.

use smallvec::SmallVec;

use super::TextMatch;
use crate::syntax::hex_value;

/// Whether the first parameter called `name` has such a `value`, both after percent-decoding. Case matters. `+` is
/// no space here: RFC 3986 knows it as itself, and applications that mean a space can match `%20`.
pub(super) fn holds(query: &str, name: &str, value: &TextMatch) -> bool {
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let mut pairs = parameters.map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")));
    pairs.find(|(raw, _)| is(raw, name)).is_some_and(|(_, raw)| match value {
        TextMatch::Exact(exact) => is(raw, exact),
        TextMatch::Regex(pattern) => {
            let decoded: SmallVec<[u8; 256]> = decode(raw.as_bytes()).collect();
            pattern.matches(&decoded)
        }
    })
}

/// Whether `raw`, decoded, is `expected`.
fn is(raw: &str, expected: &str) -> bool {
    // Decoding shortens to a third at most.
    raw.len() >= expected.len() && decode(raw.as_bytes()).eq(expected.bytes())
}

/// Broken escapes stand for themselves.
fn decode(raw: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = raw;
    std::iter::from_fn(move || {
        let (first, after) = rest.split_first()?;
        if let (b'%', [high, low, tail @ ..]) = (first, after)
            && let (Some(high), Some(low)) = (hex_value(*high), hex_value(*low))
        {
            rest = tail;
            return Some(high << 4 | low);
        }
        rest = after;
        Some(*first)
    })
}

#[cfg(test)]
mod tests {
    use super::{TextMatch, holds};
    use crate::snapshot::Pattern;

    #[test]
    fn first_parameter_of_a_name_decides_after_decoding() {
        for (query, name, value, expected) in [
            ("animal=whale", "animal", "whale", true),
            ("x=1&animal=whale&y", "animal", "whale", true),
            ("animal=dolphin&animal=whale", "animal", "whale", false),
            ("animal=whale&animal=dolphin", "animal", "whale", true),
            ("Animal=whale", "animal", "whale", false),
            ("animal=Whale", "animal", "whale", false),
            ("animal=wh%61le", "animal", "whale", true),
            ("%61nimal=whale", "animal", "whale", true),
            ("animal=whales", "animal", "whale", false),
            ("animals=whale", "animal", "whale", false),
            ("animal", "animal", "", true),
            ("animal=", "animal", "", true),
            ("animal=a%3Db%26c", "animal", "a=b&c", true),
            ("animal=a=b", "animal", "a=b", true),
            ("animal=a+b", "animal", "a+b", true),
            ("animal=a%20b", "animal", "a b", true),
            ("animal=%zz%", "animal", "%zz%", true),
            ("animal=%C3%A9", "animal", "é", true),
            ("&&animal=whale", "animal", "whale", true),
            ("", "animal", "", false),
        ] {
            assert_eq!(holds(query, name, &value.into()), expected, "{query} {name}={value}");
        }
    }
    #[test]
    fn expressions_see_the_decoded_value() {
        let whale = TextMatch::Regex(Pattern::new("wh?a l(e|é)").unwrap());
        for (query, expected) in [
            ("a=wa%20le", true),
            ("a=wa%20l%C3%A9", true),
            ("a=wa+le", false),
            ("a=x&a=wa%20le", false),
            ("b=1", false),
        ] {
            assert_eq!(holds(query, "a", &whale), expected, "{query}");
        }
    }
}
