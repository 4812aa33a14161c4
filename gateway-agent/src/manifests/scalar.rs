//! What an unquoted YAML scalar means, as `kubectl` reads it: YAML 1.1 with Go's integer syntax, then JSON.
//!
//! So `on`, `y` and `no` are booleans and `0777` is 511, here as there. Timestamps stay text, there being none in JSON.
//!
//! **Invariant:** pure.

use saphyr_parser::{ScalarStyle, Tag};
use serde_json::{Number, Value};

/// Text and what was written around it, as JSON; the error says what cannot be had.
pub(super) fn resolve(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let Some(tag) = tag else {
        return match style {
            ScalarStyle::Plain => plain(text),
            _ => Ok(Value::String(text.to_owned())),
        };
    };
    // `!` alone and `!!str` ask for text.
    if (tag.is_yaml_core_schema() && tag.suffix == "str") || (tag.handle.is_empty() && tag.suffix == "!") {
        return Ok(Value::String(text.to_owned()));
    }
    let value = plain(text)?;
    let fits = match tag.suffix.as_str() {
        "bool" if tag.is_yaml_core_schema() => value.is_boolean(),
        "float" if tag.is_yaml_core_schema() => value.is_number(),
        "int" if tag.is_yaml_core_schema() => value.is_i64() || value.is_u64(),
        "null" if tag.is_yaml_core_schema() => value.is_null(),
        _ => return Err(format!("the tag {tag} is not supported")),
    };
    if fits { Ok(value) } else { Err(format!("the tag {tag} does not fit this value")) }
}

fn plain(text: &str) -> Result<Value, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf"
        | "-.Inf" | "-.INF" => return Err(format!("{text} has no form in JSON; quote it if it is text")),
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    })
}

fn number(text: &str) -> Option<Number> {
    if !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.')) {
        return None;
    }
    let text = text.replace('_', "");
    integer(&text).or_else(|| float(&text))
}

/// Decimal, `0x`, `0o`, `0b`, and octal by a leading zero.
fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        Some("0o" | "0O") => (8, &digits[2..]),
        Some("0b" | "0B") => (2, &digits[2..]),
        Some(_) if digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    // The parser below would take a second sign.
    if !digits.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -value } else { value };
    i64::try_from(value).map(Number::from).or_else(|_| u64::try_from(value).map(Number::from)).ok()
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn float(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let well_formed = digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent));
    if !well_formed {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    // On its way to the API server 1.0 becomes JSON as 1, which an integer field takes. Beyond 2^53 not every integer
    // is a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "integral and within i64 by the line above")]
        return Some(Number::from(value as i64));
    }
    Number::from_f64(value)
}

#[cfg(test)]
mod tests {
    use saphyr_parser::ScalarStyle;
    use serde_json::json;

    use super::resolve;

    #[test]
    fn plain_scalars_are_what_kubectl_makes_of_them() {
        for (text, expected) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("on", json!(true)),
            ("n", json!(false)),
            ("None", json!("None")),
            ("80", json!(80)),
            ("+80", json!(80)),
            ("-1", json!(-1)),
            ("--1", json!("--1")),
            ("0x-1", json!("0x-1")),
            ("0777", json!(511)),
            ("0o17", json!(15)),
            ("0x10", json!(16)),
            ("0b11", json!(3)),
            ("08", json!(8)),
            ("1_000", json!(1000)),
            ("18446744073709551615", json!(u64::MAX)),
            ("1.0", json!(1)),
            ("1.5", json!(1.5)),
            (".5", json!(0.5)),
            ("1e3", json!(1000)),
            ("1e", json!("1e")),
            (".", json!(".")),
            ("-", json!("-")),
            ("10s", json!("10s")),
            ("10.0.0.1", json!("10.0.0.1")),
            ("::1", json!("::1")),
            ("1:30", json!("1:30")),
            ("2026-01-01T00:00:00Z", json!("2026-01-01T00:00:00Z")),
        ] {
            assert_eq!(resolve(text, ScalarStyle::Plain, None), Ok(expected), "{text}");
        }
        assert!(resolve(".nan", ScalarStyle::Plain, None).is_err());
    }

    #[test]
    fn quotes_make_text() {
        for style in [ScalarStyle::SingleQuoted, ScalarStyle::DoubleQuoted, ScalarStyle::Literal] {
            assert_eq!(resolve("80", style, None), Ok(json!("80")));
            assert_eq!(resolve("", style, None), Ok(json!("")));
        }
    }
}
