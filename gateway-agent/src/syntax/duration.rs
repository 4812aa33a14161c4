//! Durations as the Gateway API writes them (GEP-2257): a subset of Go's.

use std::time::Duration;

/// One to four components of one to five digits and a unit each, which are added up. `None` for anything else.
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = 0_u64;
    for _ in 0..4 {
        let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, unit) = rest.split_at(n_digits);
        let value: u64 = if n_digits <= 5 { digits.parse().ok()? } else { return None };
        let (millis, length) = match unit.as_bytes() {
            [b'm', b's', ..] => (1, 2),
            [b'h', ..] => (3_600_000, 1),
            [b'm', ..] => (60_000, 1),
            [b's', ..] => (1000, 1),
            _ => return None,
        };
        sum += value * millis;
        rest = unit.get(length..)?;
        if rest.is_empty() {
            return Some(Duration::from_millis(sum));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse;

    #[test]
    fn components_are_added_up() {
        for (text, millis) in [
            ("0s", Some(0)),
            ("500ms", Some(500)),
            ("1h", Some(3_600_000)),
            ("00060m", Some(3_600_000)),
            ("1h30m30s500ms", Some(5_430_500)),
            ("1h2h20m10m", Some(12_600_000)),
            ("99999h", Some(359_996_400_000)),
            ("1m1s", Some(61_000)),
            ("1ms1m", Some(60_001)),
            ("", None),
            ("0", None),
            ("1", None),
            ("s", None),
            ("-1s", None),
            ("1.5s", None),
            ("100000s", None),
            ("1d", None),
            ("1us", None),
            ("1s ", None),
            ("1s1", None),
            ("1s1s1s1s1s", None),
            ("1é", None),
        ] {
            let parsed = parse(text).map(|duration| duration.as_millis());
            assert_eq!(parsed, millis, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn exactly_what_the_pattern_of_the_api_allows_is_read(text in "[0-9]{0,6}(h|m|s|ms|d|)([0-9]{1,5}(h|m|s|ms)){0,4}") {
            let pattern = regex::Regex::new("^([0-9]{1,5}(h|m|s|ms)){1,4}$").unwrap();
            prop_assert_eq!(parse(&text).is_some(), pattern.is_match(&text), "{}", text);
        }
    }
}
