//! The bytes of one file to objects and findings.
//!
//! **Invariant:** pure: no I/O, and no memory of earlier versions, which is `folder`'s.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::kinds::{self, Named};
use super::path::FieldPath;
use super::report::Report;
use super::yaml::{self, Data, Document, Node};
use super::{Finding, Kind, ObjectId, Place, core, meta, schema, typed};
use crate::api::Object;
use crate::snapshot::ObjectName;

/// What a file holds in one version of it.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) entries: Vec<Entry>,
    pub(super) findings: Vec<Finding>,
}

/// One object, good or bad.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// `None` where not even that is clear.
    pub(super) id: Option<ObjectId>,
    pub(super) place: Place,
    /// `None` where it is bad.
    pub(super) object: Option<Object>,
    pub(super) created: Option<Time>,
}

/// The error is about the file: nothing in it can be used.
pub(super) fn parse(file: &Arc<str>, bytes: &[u8]) -> Result<Content, Finding> {
    let mut text = Cow::Borrowed(decode(file, bytes)?);
    if file.ends_with(".json") {
        text = Cow::Owned(json_as_yaml(&text));
    }
    let documents = yaml::parse(&text).map_err(|fault| Finding {
        line: fault.line,
        document: fault.document,
        ..Finding::of_file(file, fault.message)
    })?;
    let mut content = Content::default();
    for (index, Document { root }) in documents.iter().enumerate() {
        if !root.is_null() {
            Source { file, document: index + 1, root }.read(root, FieldPath::default(), &mut content);
        }
    }
    Ok(content)
}

fn decode<'a>(file: &Arc<str>, bytes: &'a [u8]) -> Result<&'a str, Finding> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Finding { line, ..Finding::of_file(file, "not UTF-8 text") }
    })
}

/// JSON is YAML but for tabs between tokens, which cannot be within its strings, and pairs of surrogates.
fn json_as_yaml(text: &str) -> String {
    let text = text.replace('\t', " ");
    let mut made = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        made.push_str(before);
        let unit = |at: usize| {
            let digits = escape.get(at..at + 6)?.strip_prefix("\\u")?;
            u16::from_str_radix(digits, 16).ok()
        };
        let pair = unit(0).zip(unit(6)).and_then(|(high, low)| char::decode_utf16([high, low]).next()?.ok());
        let taken = match pair {
            Some(character) if u32::from(character) > 0xffff => {
                made.push(character);
                12
            }
            // Two, so that an escaped backslash begins no escape of its own.
            _ => {
                let end = escape.char_indices().nth(2).map_or(escape.len(), |(end, _)| end);
                made.push_str(&escape[..end]);
                end
            }
        };
        rest = &escape[taken..];
    }
    made.push_str(rest);
    made
}

/// Where objects are read from.
#[derive(Clone, Copy)]
struct Source<'a> {
    file: &'a Arc<str>,
    document: usize,
    root: &'a Node,
}

impl Source<'_> {
    fn read(self, node: &Node, prefix: FieldPath, content: &mut Content) {
        let mut findings = Vec::new();
        let mut report = Report::new(self.file, self.document, self.root, prefix.clone(), &mut findings);
        let header = header(node, &mut report);
        let is_list = header == Some(("v1", "List")) && prefix.segments().is_empty();
        if !is_list {
            content.entries.extend(object(node, header, &mut report));
            content.findings.append(&mut findings);
            return;
        }
        let items = match node.get("items").map(|items| &items.data) {
            Some(Data::Sequence(items)) => items.as_slice(),
            None | Some(Data::Scalar(Value::Null)) => &[],
            Some(Data::Scalar(_) | Data::Mapping(_)) => {
                report.error(&FieldPath::from("items"), "expected a list");
                content.entries.push(unclear(&report));
                &[]
            }
        };
        content.findings.append(&mut findings);
        for (index, item) in items.iter().enumerate() {
            self.read(item, FieldPath::from("items").index(index), content);
        }
    }
}

/// `apiVersion` and `kind`.
fn header<'a>(node: &'a Node, report: &mut Report<'_>) -> Option<(&'a str, &'a str)> {
    if !matches!(node.data, Data::Mapping(_)) {
        let found = schema::found(&node.to_value());
        report.error(
            &FieldPath::default(),
            format!("expected an object with apiVersion and kind, found {found}"),
        );
        return None;
    }
    let mut text = |name: &str| match node.get(name).map(|value| (value, value.as_str())) {
        Some((_, Some(text))) if !text.is_empty() => Some(text),
        Some((value, None)) if !value.is_null() => {
            let found = schema::found(&value.to_value());
            report.error(&FieldPath::from(name), format!("expected string, found {found}"));
            None
        }
        _ => {
            report.error(&FieldPath::from(name), "required, but missing");
            None
        }
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    Some((api_version?, kind?))
}

fn unclear(report: &Report<'_>) -> Entry {
    Entry { id: None, place: report.place(), object: None, created: None }
}

/// `None` for an object that the agent has no use for.
fn object(node: &Node, header: Option<(&str, &str)>, report: &mut Report<'_>) -> Option<Entry> {
    let Some((api_version, kind)) = header else { return Some(unclear(report)) };
    let kind = match kinds::find(api_version, kind) {
        Named::Known(kind) => kind,
        Named::Unknown(message) => {
            report.error(&FieldPath::from("kind"), message);
            return Some(unclear(report));
        }
        Named::Unused(message) => {
            report.warning(&FieldPath::from("kind"), message);
            return None;
        }
        Named::WrongVersion(message) => {
            report.error(&FieldPath::from("apiVersion"), message);
            return Some(unclear(report));
        }
    };
    let mut value = node.to_value();
    let mut entry = Entry { id: identity(kind, &value), ..unclear(report) };
    let object = match schema::of(kind) {
        Some(schema) => custom(kind, schema, &mut value, report),
        None => builtin(kind, &value, report),
    };
    if !report.has_errors()
        && let Some(object) = object
    {
        entry.created = object.metadata().creation_timestamp.clone();
        entry.object = Some(object);
    }
    Some(entry)
}

/// Which object it is, even if there is something wrong with it.
fn identity(kind: Kind, value: &Value) -> Option<ObjectId> {
    let meta = value.get("metadata")?;
    let name = meta.get("name")?.as_str().filter(|name| !name.is_empty())?;
    let namespace = match meta.get("namespace") {
        _ if !kind.is_namespaced() => "",
        None | Some(Value::Null) => meta::DEFAULT_NAMESPACE,
        Some(namespace) => match namespace.as_str()? {
            "" => meta::DEFAULT_NAMESPACE,
            namespace => namespace,
        },
    };
    Some(ObjectId { kind, name: ObjectName::new(namespace, name) })
}

/// A kind that a CRD defines.
fn custom(kind: Kind, schema: &schema::Schema, value: &mut Value, report: &mut Report<'_>) -> Option<Object> {
    let fields = value.as_object_mut()?;
    let metadata = fields.shift_remove("metadata").filter(|meta| !meta.is_null());
    let metadata = metadata.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let mut meta: ObjectMeta = typed::read(&metadata, &FieldPath::from("metadata"), report)?;
    meta::check(kind, &mut meta, report);
    schema.apply(value, report);
    if report.has_errors() {
        return None;
    }
    // The types know their own; that v1beta1 is read as v1 changes nothing, their schemas being one.
    let fields = value.as_object_mut()?;
    fields.retain(|name, _| name != "apiVersion" && name != "kind");
    fields.insert("metadata".into(), serde_json::to_value(meta).ok()?);
    let path = FieldPath::default();
    match kind {
        Kind::BackendTlsPolicy => typed::read(value, &path, report).map(Object::BackendTlsPolicy),
        Kind::Gateway => typed::read(value, &path, report).map(Object::Gateway),
        Kind::GrpcRoute => typed::read(value, &path, report).map(Object::GrpcRoute),
        Kind::HttpRoute => typed::read(value, &path, report).map(Object::HttpRoute),
        Kind::ListenerSet => typed::read(value, &path, report).map(Object::ListenerSet),
        Kind::ReferenceGrant => typed::read(value, &path, report).map(Object::ReferenceGrant),
        Kind::TcpRoute => typed::read(value, &path, report).map(Object::TcpRoute),
        Kind::TlsRoute => typed::read(value, &path, report).map(Object::TlsRoute),
        Kind::UdpRoute => typed::read(value, &path, report).map(Object::UdpRoute),
        Kind::ConfigMap | Kind::EndpointSlice | Kind::Namespace | Kind::Secret | Kind::Service => None,
    }
}

/// A kind that is compiled into the API server.
fn builtin(kind: Kind, value: &Value, report: &mut Report<'_>) -> Option<Object> {
    match kind {
        Kind::ConfigMap => {
            let map = read(kind, value, report)?;
            core::config_map(&map, report);
            Some(Object::ConfigMap(Box::new(map)))
        }
        Kind::EndpointSlice => {
            let mut slice = read(kind, value, report)?;
            core::endpoint_slice(&mut slice, report);
            Some(Object::EndpointSlice(Box::new(slice)))
        }
        Kind::Namespace => Some(Object::Namespace(Box::new(read(kind, value, report)?))),
        Kind::Secret => {
            let mut secret = read(kind, value, report)?;
            core::secret(&mut secret, report);
            Some(Object::Secret(Box::new(secret)))
        }
        Kind::Service => {
            let mut service = read(kind, value, report)?;
            core::service(&mut service, report);
            Some(Object::Service(Box::new(service)))
        }
        Kind::BackendTlsPolicy
        | Kind::Gateway
        | Kind::GrpcRoute
        | Kind::HttpRoute
        | Kind::ListenerSet
        | Kind::ReferenceGrant
        | Kind::TcpRoute
        | Kind::TlsRoute
        | Kind::UdpRoute => None,
    }
}

fn read<T>(kind: Kind, value: &Value, report: &mut Report<'_>) -> Option<T>
where
    T: DeserializeOwned + Resource + k8s_openapi::Metadata<Ty = ObjectMeta>,
{
    let mut object: T = typed::read(value, &FieldPath::default(), report)?;
    meta::check(kind, object.metadata_mut(), report);
    Some(object)
}
