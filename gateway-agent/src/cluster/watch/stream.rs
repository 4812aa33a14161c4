//! The bytes of lists and watches to objects: sans-IO.
//!
//! **Invariant:** pure; holds one line of a watch or one item of a list at a time.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster::client::Status;

/// An object is at most 1.5 MiB in etcd; JSON with escapes and managed fields is a few times that at worst.
const MAX_LINE: usize = 8 << 20;

/// A line longer than any object can be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Cuts a stream of bytes into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
}

impl Lines {
    /// Calls `each` with every line that `data` completes. Empty lines are none.
    pub(super) fn push(&mut self, data: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), TooLong> {
        let mut rest = data;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) =
                (rest.get(..end).unwrap_or_default(), rest.get(end + 1..).unwrap_or_default());
            rest = after;
            if self.buffer.is_empty() {
                if !line.is_empty() {
                    each(line);
                }
            } else {
                self.buffer.extend_from_slice(line);
                each(&self.buffer);
                self.buffer.clear();
            }
        }
        if self.buffer.len() + rest.len() > MAX_LINE {
            return Err(TooLong);
        }
        self.buffer.extend_from_slice(rest);
        // One large object must not cost its size for as long as the watch lasts.
        if self.buffer.is_empty() && self.buffer.capacity() > 64 << 10 {
            self.buffer = Vec::new();
        }
        Ok(())
    }
}

/// One line of a watch.
#[derive(Debug)]
pub(super) enum Event {
    /// Added or modified.
    Applied(Value),
    Deleted(Value),
    /// Nothing happened up to this version.
    Bookmark(String),
    /// The server ends the watch, and why.
    Failed(Status),
    /// Not an event of this API.
    Unreadable(String),
}

#[derive(Deserialize)]
struct Line {
    r#type: String,
    object: Value,
}

impl Event {
    pub(super) fn parse(line: &[u8]) -> Self {
        let Line { r#type, object } = match serde_json::from_slice(line) {
            Ok(line) => line,
            Err(error) => return Self::Unreadable(error.to_string()),
        };
        match r#type.as_str() {
            "ADDED" | "MODIFIED" => Self::Applied(object),
            "DELETED" => Self::Deleted(object),
            "BOOKMARK" => Self::Bookmark(resource_version(&object).to_owned()),
            "ERROR" => match Status::deserialize(object) {
                Ok(status) => Self::Failed(status),
                Err(error) => Self::Unreadable(error.to_string()),
            },
            other => Self::Unreadable(format!("unknown type of event {other:?}")),
        }
    }
}

pub(super) fn resource_version(object: &Value) -> &str {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default()
}

/// What a page of a list says of itself.
#[derive(Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Page {
    pub resource_version: String,
    /// Empty on the last page.
    #[serde(rename = "continue")]
    pub next: String,
}

/// Reads one page, each item apart.
pub(super) fn read_page(bytes: &[u8], each: impl FnMut(Value)) -> Result<Page, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let page = PageSeed(each).deserialize(&mut reader)?;
    reader.end()?;
    Ok(page)
}

struct PageSeed<F>(F);

impl<'de, F: FnMut(Value)> DeserializeSeed<'de> for PageSeed<F> {
    type Value = Page;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Page, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: FnMut(Value)> Visitor<'de> for PageSeed<F> {
    type Value = Page;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Page, A::Error> {
        let mut page = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metadata" => page = Some(map.next_value()?),
                "items" => map.next_value_seed(Items(&mut self.0))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        page.ok_or_else(|| serde::de::Error::missing_field("metadata"))
    }
}

struct Items<'f, F>(&'f mut F);

impl<'de, F: FnMut(Value)> DeserializeSeed<'de> for Items<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(Value)> Visitor<'de> for Items<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the items of a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element()? {
            (self.0)(item);
        }
        Ok(())
    }

    /// Go writes an empty list as `null`.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Lines, MAX_LINE, Page, TooLong, read_page};

    fn lines(chunks: &[&str]) -> Vec<String> {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for chunk in chunks {
            let push =
                lines.push(chunk.as_bytes(), |line| seen.push(String::from_utf8_lossy(line).into_owned()));
            push.expect("short");
        }
        seen
    }

    #[test]
    fn lines_come_whole_however_they_are_split() {
        let text = "{\"a\":1}\n{\"b\":2}\n\n{\"c\":3}\n{\"cut";
        let whole = lines(&[text]);
        assert_eq!(whole, ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]);
        for cut in 0..text.len() {
            assert_eq!(lines(&[&text[..cut], &text[cut..]]), whole, "{cut}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = Lines::default();
        let chunk = vec![b'x'; MAX_LINE / 2];
        assert_eq!(lines.push(&chunk, |_| {}), Ok(()));
        assert_eq!(lines.push(&chunk, |_| {}), Ok(()));
        assert_eq!(lines.push(b"x", |_| {}), Err(TooLong));
    }

    #[test]
    fn events_are_told_apart() {
        let parse = |line: &str| Event::parse(line.as_bytes());
        assert!(matches!(parse(r#"{"type":"ADDED","object":{"a":1}}"#), Event::Applied(_)));
        assert!(matches!(parse(r#"{"type":"MODIFIED","object":{"a":1}}"#), Event::Applied(_)));
        assert!(matches!(parse(r#"{"type":"DELETED","object":{"a":1}}"#), Event::Deleted(_)));
        let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12"}}}"#;
        assert!(matches!(parse(bookmark), Event::Bookmark(version) if version == "12"));
        // O52: 410 within a watch.
        let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
        assert!(matches!(parse(gone), Event::Failed(status) if status.code == 410));
        for odd in ["", "{", "[]", r#"{"type":"NEW","object":{}}"#, r#"{"type":"ERROR","object":3}"#] {
            assert!(matches!(parse(odd), Event::Unreadable(_)), "{odd}");
        }
    }

    // O50: one odd item is one odd item.
    #[test]
    fn items_of_a_page_are_read_apart() {
        let text = br#"{"kind":"List","metadata":{"resourceVersion":"9","continue":"abc","x":1},"items":[{"n":1},7,{"n":2}]}"#;
        let mut items = Vec::new();
        let page = read_page(text, |item| items.push(item.to_string())).expect("a page");
        assert_eq!(page, Page { resource_version: "9".into(), next: "abc".into() });
        assert_eq!(items, [r#"{"n":1}"#, "7", r#"{"n":2}"#]);
    }

    #[test]
    fn a_page_may_be_empty_and_may_not_be_half() {
        let empty = read_page(br#"{"items":null,"metadata":{"resourceVersion":"1"}}"#, |_| {});
        assert_eq!(empty.expect("a page").resource_version, "1");
        for bad in [
            &br#"{"items":[]}"#[..],
            br#"{"metadata":{},"items":["#,
            b"[]",
            b"<html>",
            br#"{"metadata":{}}x"#,
        ] {
            assert!(read_page(bad, |_| {}).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
