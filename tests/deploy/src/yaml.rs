//! The YAML that kustomize writes, as values. It is for trusted text: no bounds, no anchors.

use anyhow::{Result, bail};
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// All documents of `text`.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    let mut events = Parser::new_from_str(text);
    let mut documents = Vec::new();
    loop {
        match next(&mut events)? {
            Event::StreamEnd => return Ok(documents),
            event @ (Event::Scalar(..) | Event::MappingStart(..) | Event::SequenceStart(..)) => {
                documents.push(value(&mut events, event)?);
            }
            _ => {}
        }
    }
}

fn next<'t>(events: &mut impl Iterator<Item = Parsed<'t>>) -> Result<Event<'t>> {
    match events.next() {
        Some(Ok((event, _))) => Ok(event),
        Some(Err(error)) => bail!("malformed YAML: {error}"),
        None => Ok(Event::StreamEnd),
    }
}

type Parsed<'t> = Result<(Event<'t>, saphyr_parser::Span), saphyr_parser::ScanError>;

fn value<'t>(events: &mut impl Iterator<Item = Parsed<'t>>, event: Event<'t>) -> Result<Value> {
    match event {
        Event::Scalar(text, ScalarStyle::Plain, ..) => Ok(scalar(&text)),
        Event::Scalar(text, ..) => Ok(Value::String(text.into_owned())),
        Event::SequenceStart(..) => {
            let mut items = Vec::new();
            loop {
                match next(events)? {
                    Event::SequenceEnd => return Ok(Value::Array(items)),
                    event => items.push(value(events, event)?),
                }
            }
        }
        Event::MappingStart(..) => {
            let mut fields = Map::new();
            loop {
                match next(events)? {
                    Event::MappingEnd => return Ok(Value::Object(fields)),
                    Event::Scalar(key, ..) => {
                        let event = next(events)?;
                        fields.insert(key.into_owned(), value(events, event)?);
                    }
                    other => bail!("a key is a scalar, not {other:?}"),
                }
            }
        }
        other => bail!("unexpected in YAML: {other:?}"),
    }
}

fn scalar(text: &str) -> Value {
    match text {
        "" | "null" | "~" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => text.parse::<i64>().map_or_else(|_| Value::String(text.to_owned()), Value::from),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn documents_become_values() {
        let text = "a:\n- 1\n- \"1\"\n- x: true\nb: |\n  text\n---\nc: {}\n";
        assert_eq!(
            super::documents(text).unwrap(),
            [json!({ "a": [1, "1", { "x": true }], "b": "text\n" }), json!({ "c": {} })]
        );
    }
}
