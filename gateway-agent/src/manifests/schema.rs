//! The structural schemas of the Gateway API kinds, applied as the API server applies them to a new object:
//! unknown fields found, nulls dropped, defaults filled in, validated, and held against the CEL rules.
//!
//! `status` is dropped unread, as it is on creation. `metadata` is none of the schema's: see `meta`.
//!
//! **Invariant:** pure.

use std::sync::LazyLock;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

use super::kinds::closest;
use super::path::{FieldPath, Segment};
use super::report::Report;
use super::rules::Rules;
use crate::api::Kind;

/// A longer value in a message hides what is wrong with it.
const MAX_QUOTED: usize = 100;

/// What most often makes a boolean of what was meant as text.
pub(super) const BOOLEAN_HINT: &str =
    "; in YAML y, n, yes, no, on and off are booleans unless they are quoted";

pub(super) struct Schema {
    structure: Value,
    validator: Validator,
    rules: Rules,
}

/// The schema of a Gateway API kind; `None` for a kind that is not defined by a CRD.
pub(super) fn of(kind: Kind) -> Option<&'static Schema> {
    macro_rules! schema {
        ($file:literal) => {{
            static SCHEMA: LazyLock<Schema> =
                LazyLock::new(|| Schema::new(include_str!(concat!("../../schemas/", $file, ".json"))));
            Some(&*SCHEMA)
        }};
    }
    match kind {
        Kind::BackendTlsPolicy => schema!("backendtlspolicies"),
        Kind::Gateway => schema!("gateways"),
        Kind::GrpcRoute => schema!("grpcroutes"),
        Kind::HttpRoute => schema!("httproutes"),
        Kind::ListenerSet => schema!("listenersets"),
        Kind::ReferenceGrant => schema!("referencegrants"),
        Kind::TcpRoute => schema!("tcproutes"),
        Kind::TlsRoute => schema!("tlsroutes"),
        Kind::UdpRoute => schema!("udproutes"),
        Kind::ConfigMap | Kind::EndpointSlice | Kind::Namespace | Kind::Secret | Kind::Service => None,
    }
}

// === impl Schema ===

impl Schema {
    /// `text` is part of this program, and a test compiles each, so that a fault in it cannot reach a user.
    fn new(text: &str) -> Self {
        let mut structure: Value = serde_json::from_str(text).expect("a schema is JSON");
        if let Some(Value::Object(fields)) = structure.get_mut("properties") {
            fields.remove("metadata");
            fields.remove("status");
        }
        let validator = jsonschema::draft7::options()
            .should_validate_formats(true)
            // Linear time, and the syntax that Go has too.
            .with_pattern_options(PatternOptions::regex())
            .build(&strict(&structure))
            .expect("a schema compiles");
        Self { rules: Rules::new(&structure), structure, validator }
    }

    /// Fills in the defaults of `object`, which is without `metadata`, and reports what the schema forbids.
    pub(super) fn apply(&self, object: &mut Value, report: &mut Report<'_>) {
        if let Value::Object(fields) = object {
            fields.remove("status");
        }
        structure(&self.structure, object, &FieldPath::default(), report);
        for error in self.validator.iter_errors(object) {
            let (path, message) = describe(&error);
            report.error(&path, message);
        }
        if !report.has_errors() {
            self.rules.check(&self.structure, object, report);
        }
    }
}

/// Unknown fields, nulls, defaults and duplicate list entries, from the outside in: a default is filled in before
/// what it holds is looked at.
fn structure(schema: &Value, value: &mut Value, path: &FieldPath, report: &mut Report<'_>) {
    match value {
        Value::Object(fields) => object(schema, fields, path, report),
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (index, item) in items.iter_mut().enumerate() {
                    structure(schema, item, &path.index(index), report);
                }
            }
            duplicates(schema, items, path, report);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn object(schema: &Value, fields: &mut Map<String, Value>, path: &FieldPath, report: &mut Report<'_>) {
    if let Some(additional @ Value::Object(_)) = schema.get("additionalProperties") {
        for (name, value) in fields.iter_mut() {
            structure(additional, value, &path.field(name), report);
        }
        return;
    }
    let preserves = is_true(schema, "x-kubernetes-preserve-unknown-fields");
    let no_properties = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&no_properties);
    fields.retain(|name, value| match properties.get(name) {
        // A null where none may be is as if it were not there.
        Some(property) => !value.is_null() || is_true(property, "nullable"),
        None => {
            if !preserves {
                let hint = closest(name, properties.keys().map(String::as_str))
                    .map_or_else(String::new, |known| format!("; did you mean {known}?"));
                report.error(&path.field(name), format!("unknown field{hint}"));
            }
            preserves
        }
    });
    for (name, property) in properties {
        if let Some(default) = property.get("default")
            && !fields.contains_key(name)
        {
            fields.insert(name.clone(), default.clone());
        }
        if let Some(value) = fields.get_mut(name) {
            structure(property, value, &path.field(name), report);
        }
    }
}

fn duplicates(schema: &Value, items: &[Value], path: &FieldPath, report: &mut Report<'_>) {
    let of_set = |item: &Value| Some(item.to_string());
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("map") => {
            let keys: Vec<_> = schema
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let text = |item: &Value| {
                let values = keys.iter().filter_map(|key| Some(format!("{key} {}", item.get(key)?)));
                Some(values.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
            };
            report_duplicates(items, text, path, report);
        }
        Some("set") => report_duplicates(items, of_set, path, report),
        _ => {}
    }
}

fn report_duplicates(
    items: &[Value],
    key: impl Fn(&Value) -> Option<String>,
    path: &FieldPath,
    report: &mut Report<'_>,
) {
    let mut seen = rustc_hash::FxHashMap::default();
    for (index, item) in items.iter().enumerate() {
        let Some(key) = key(item) else { continue };
        if let Some(first) = seen.get(&key) {
            report.error(&path.index(index), format!("duplicate of {}: {key}", path.index(*first)));
        } else {
            seen.insert(key, index);
        }
    }
}

fn is_true(schema: &Value, keyword: &str) -> bool {
    schema.get(keyword) == Some(&Value::Bool(true))
}

/// A structural schema in the words of JSON Schema: `nullable` and `x-kubernetes-int-or-string` become types, and
/// what JSON Schema does not know goes.
fn strict(schema: &Value) -> Value {
    let Value::Object(keywords) = schema else { return schema.clone() };
    let mut made = Map::new();
    for (keyword, value) in keywords {
        let value = match (keyword.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                Value::Object(fields.iter().map(|(name, schema)| (name.clone(), strict(schema))).collect())
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => schemas.iter().map(strict).collect(),
            ("additionalProperties" | "items" | "not", schema) => strict(schema),
            // These widths are of the Go type; the typed form of the object checks them.
            ("format", Value::String(format)) if matches!(format.as_str(), "int32" | "int64") => continue,
            (keyword, _) if keyword == "default" || keyword.starts_with("x-kubernetes-") => continue,
            (_, value) => value.clone(),
        };
        made.insert(keyword.clone(), value);
    }
    if is_true(schema, "x-kubernetes-int-or-string") {
        made.insert("type".into(), serde_json::json!(["integer", "string"]));
    }
    if made.remove("nullable") == Some(Value::Bool(true)) {
        return serde_json::json!({ "anyOf": [{ "type": "null" }, made] });
    }
    Value::Object(made)
}

/// Which field, and what is wrong with it.
fn describe(error: &ValidationError<'_>) -> (FieldPath, String) {
    let path = FieldPath::from_pointer(error.instance_path().as_str());
    match error.kind() {
        ValidationErrorKind::Required { property: Value::String(name) } => {
            (path.field(name), "required, but missing".into())
        }
        ValidationErrorKind::Enum { options } => {
            let options: Vec<_> = options.as_array().into_iter().flatten().map(Value::to_string).collect();
            (path, format!("{} is none of {}", found(error.instance()), options.join(", ")))
        }
        ValidationErrorKind::Type { kind } => {
            let expected = match kind {
                TypeKind::Single(expected) => expected.to_string(),
                TypeKind::Multiple(all) => {
                    all.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or ")
                }
            };
            let hint = if error.instance().is_boolean() && expected == "string" { BOOLEAN_HINT } else { "" };
            (path, format!("expected {expected}, found {}{hint}", found(error.instance())))
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            let formats: Vec<_> = context.iter().flatten().filter_map(format_of).collect();
            if formats.len() == context.len() {
                return (
                    path,
                    format!("{} is not of the form {}", found(error.instance()), formats.join(" or ")),
                );
            }
            // The first form is the one that is meant, in the one place where v1.7.0 has this.
            match context.iter().flatten().next() {
                Some(error) => describe(error),
                None => (path, "has none of the forms that are allowed here".into()),
            }
        }
        _ => {
            let message = match &**error.instance() {
                Value::Array(_) => error.masked_with("the list").to_string(),
                Value::Object(_) => error.masked_with("the object").to_string(),
                Value::String(text) if text.len() > MAX_QUOTED => error.masked_with("the text").to_string(),
                _ => error.to_string(),
            };
            (path, message)
        }
    }
}

fn format_of<'a>(error: &'a ValidationError<'_>) -> Option<&'a str> {
    match error.kind() {
        ValidationErrorKind::Format { format } => Some(format),
        _ => None,
    }
}

/// A value as a message quotes it.
pub(super) fn found(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".into(),
        Value::Null => "null".into(),
        Value::Object(_) => "an object".into(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(text) if text.len() > MAX_QUOTED => "text".into(),
        Value::String(text) => format!("the text {text:?}"),
    }
}

impl FieldPath {
    /// From a JSON pointer.
    fn from_pointer(pointer: &str) -> Self {
        pointer
            .split('/')
            .skip(1)
            .map(|token| match token.parse() {
                Ok(index) => Segment::Index(index),
                Err(_) => Segment::Field(token.replace("~1", "/").replace("~0", "~")),
            })
            .collect()
    }
}
