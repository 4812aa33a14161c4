//! YAML text to nodes that know their line, within bounds.
//!
//! JSON is read by the same parser. It knows nothing of Kubernetes. A fault anywhere makes the whole text unusable:
//! what follows it cannot be trusted to be what was meant.
//!
//! **Invariant:** pure.

use std::collections::HashMap;
use std::mem::size_of;

use rustc_hash::FxHashSet;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Value};

use super::path::{FieldPath, Segment};
use super::scalar;

/// Collections within collections; the deepest schema of the API has 15. Recursive walks rely on it.
pub(super) const MAX_DEPTH: usize = 64;
/// Documents in one file: far above any real file, far below what would make a list of findings useless.
pub(super) const MAX_DOCUMENTS: usize = 10_000;
/// Memory that the nodes of one file may take, aliases expanded. A file of the greatest size takes a third of it.
pub(super) const MAX_NODE_BYTES: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct Document {
    pub(super) root: Node,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) data: Data,
}

#[derive(Clone, Debug)]
pub(super) enum Data {
    Mapping(Vec<Entry>),
    Scalar(Value),
    Sequence(Vec<Node>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) value: Node,
}

/// Why a text cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: usize,
    /// Counted from 1.
    pub(super) document: usize,
    pub(super) message: String,
}

/// All documents of `text`, empty ones too, so that their positions count.
pub(super) fn parse(text: &str) -> Result<Vec<Document>, Fault> {
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(next) = parser.next_event() {
        let result = match next {
            Ok((event, span)) => builder.event(event, span).map_err(|message| (span.start.line(), message)),
            Err(error) => Err((error.marker().line(), format!("malformed YAML: {}", error.info()))),
        };
        if let Err((line, message)) = result {
            return Err(Fault { line, document: builder.number.max(1), message });
        }
    }
    Ok(builder.documents)
}

// === impl Node ===

impl Node {
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match &self.data {
            Data::Mapping(entries) => {
                entries.iter().find(|entry| entry.key == name).map(|entry| &entry.value)
            }
            Data::Scalar(_) | Data::Sequence(_) => None,
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match &self.data {
            Data::Scalar(value) => value.as_str(),
            Data::Mapping(_) | Data::Sequence(_) => None,
        }
    }

    pub(super) const fn is_null(&self) -> bool {
        matches!(self.data, Data::Scalar(Value::Null))
    }

    pub(super) fn to_value(&self) -> Value {
        match &self.data {
            Data::Mapping(entries) => Value::Object(
                entries
                    .iter()
                    .map(|entry| (entry.key.clone(), entry.value.to_value()))
                    .collect::<Map<_, _>>(),
            ),
            Data::Scalar(value) => value.clone(),
            Data::Sequence(items) => Value::Array(items.iter().map(Self::to_value).collect()),
        }
    }

    /// The line where `path` is written, or as much of it as exists.
    pub(super) fn line_of(&self, path: &FieldPath) -> usize {
        let mut node = self;
        let mut line = self.line;
        for segment in path.segments() {
            match (segment, &node.data) {
                (Segment::Field(name), Data::Mapping(entries)) => {
                    let Some(entry) = entries.iter().find(|entry| entry.key == *name) else { break };
                    line = entry.line;
                    node = &entry.value;
                }
                (Segment::Index(index), Data::Sequence(items)) => {
                    let Some(item) = items.get(*index) else { break };
                    line = item.line;
                    node = item;
                }
                _ => break,
            }
        }
        line
    }
}

// === impl Builder ===

#[derive(Default)]
struct Builder {
    documents: Vec<Document>,
    /// Of the document being read, from 1.
    number: usize,
    stack: Vec<Frame>,
    root: Option<Node>,
    /// Anchored nodes of this document, with what a copy costs.
    anchors: HashMap<usize, (Node, usize)>,
    bytes: usize,
}

/// A collection that is not yet at its end.
struct Frame {
    line: usize,
    anchor: usize,
    /// What the builder had spent when it began.
    bytes: usize,
    content: Content,
}

enum Content {
    Mapping(Box<PartialMapping>),
    Sequence(Vec<Node>),
}

#[derive(Default)]
struct PartialMapping {
    entries: Vec<Entry>,
    seen: FxHashSet<String>,
    merges: Vec<Node>,
    /// A key whose value is yet to come.
    key: Option<Key>,
}

enum Key {
    /// `<<`: what follows is merged in.
    Merge,
    Name(String, usize),
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), String> {
        let line = span.start.line();
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd => Ok(()),
            Event::DocumentStart(_) => {
                if self.number == MAX_DOCUMENTS {
                    return Err(format!("more than {MAX_DOCUMENTS} documents in one file"));
                }
                self.number += 1;
                Ok(())
            }
            Event::DocumentEnd => {
                self.anchors.clear();
                let root = self.root.take().unwrap_or(Node { line, data: Data::Scalar(Value::Null) });
                self.documents.push(Document { root });
                Ok(())
            }
            Event::Alias(anchor) => {
                let Some((node, cost)) = self.anchors.get(&anchor) else {
                    return Err("an alias within the node that it names".into());
                };
                let (mut node, cost) = (node.clone_within(*cost, self.bytes)?, *cost);
                self.spend(cost)?;
                node.line = line;
                self.node(node, 0, cost)
            }
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_deref();
                let cost = size_of::<Node>() + text.len();
                self.spend(cost)?;
                if self.wants_key() {
                    let key = match (&*text, style) {
                        ("<<", ScalarStyle::Plain) => Key::Merge,
                        _ => Key::Name(key_text(scalar::resolve(&text, style, tag)?)?, line),
                    };
                    return self.key(key);
                }
                let data = Data::Scalar(scalar::resolve(&text, style, tag)?);
                self.node(Node { line, data }, anchor, cost)
            }
            Event::SequenceStart(anchor, _) => self.open(line, anchor, Content::Sequence(Vec::new())),
            Event::MappingStart(anchor, _) => self.open(line, anchor, Content::Mapping(Box::default())),
            Event::SequenceEnd | Event::MappingEnd => self.close(),
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_NODE_BYTES {
            return Err(TOO_LARGE.into());
        }
        Ok(())
    }

    fn wants_key(&self) -> bool {
        match self.stack.last().map(|frame| &frame.content) {
            Some(Content::Mapping(mapping)) => mapping.key.is_none(),
            Some(Content::Sequence(_)) | None => false,
        }
    }

    fn open(&mut self, line: usize, anchor: usize, content: Content) -> Result<(), String> {
        if self.wants_key() {
            return Err("a key must be text".into());
        }
        if self.stack.len() == MAX_DEPTH {
            return Err(format!("nested more than {MAX_DEPTH} deep"));
        }
        self.stack.push(Frame { line, anchor, bytes: self.bytes, content });
        self.spend(size_of::<Node>())
    }

    fn close(&mut self) -> Result<(), String> {
        let Some(Frame { line, anchor, bytes, content }) = self.stack.pop() else { return Ok(()) };
        let data = match content {
            Content::Mapping(mapping) => Data::Mapping(merged(*mapping)?),
            Content::Sequence(items) => Data::Sequence(items),
        };
        let cost = self.bytes.saturating_sub(bytes);
        self.node(Node { line, data }, anchor, cost)
    }

    fn key(&mut self, key: Key) -> Result<(), String> {
        if let Some(Frame { content: Content::Mapping(mapping), .. }) = self.stack.last_mut() {
            if let Key::Name(name, _) = &key
                && !mapping.seen.insert(name.clone())
            {
                return Err(format!("the key {name:?} is there twice in one mapping"));
            }
            mapping.key = Some(key);
        }
        Ok(())
    }

    /// Puts a complete node where it belongs.
    fn node(&mut self, node: Node, anchor: usize, cost: usize) -> Result<(), String> {
        if anchor != 0 {
            self.spend(cost)?;
            self.anchors.insert(anchor, (node.clone(), cost));
        }
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut frame.content {
            Content::Sequence(items) => items.push(node),
            Content::Mapping(mapping) => match (mapping.key.take(), node.data) {
                (Some(Key::Name(key, line)), data) => {
                    mapping.entries.push(Entry { key, line, value: Node { line: node.line, data } });
                }
                (Some(Key::Merge), Data::Sequence(items)) => mapping.merges.extend(items),
                (Some(Key::Merge), data) => mapping.merges.push(Node { line: node.line, data }),
                // An alias in the place of a key.
                (None, Data::Scalar(value)) => return self.key(Key::Name(key_text(value)?, node.line)),
                (None, _) => return Err("a key must be text".into()),
            },
        }
        Ok(())
    }
}

const TOO_LARGE: &str = "the file takes more than 64 MiB in memory once its aliases are expanded";

impl Node {
    /// A copy, refused before it is made when it would not fit.
    fn clone_within(&self, cost: usize, spent: usize) -> Result<Self, String> {
        if spent.saturating_add(cost) > MAX_NODE_BYTES { Err(TOO_LARGE.into()) } else { Ok(self.clone()) }
    }
}

/// Entries of the mapping itself come before those that `<<` merges in, earlier ones before later ones.
fn merged(mapping: PartialMapping) -> Result<Vec<Entry>, String> {
    let PartialMapping { mut entries, mut seen, merges, .. } = mapping;
    for node in merges {
        let Data::Mapping(more) = node.data else { return Err("<< must be followed by a mapping".into()) };
        entries.extend(more.into_iter().filter(|entry| seen.insert(entry.key.clone())));
    }
    Ok(entries)
}

/// JSON has text keys only; numbers and booleans become text, as `kubectl` does it.
fn key_text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Number(value) => Ok(value.to_string()),
        Value::Array(_) | Value::Null | Value::Object(_) => Err("a key must be text".into()),
    }
}
