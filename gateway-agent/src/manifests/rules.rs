//! The CEL rules of a CRD's schema (`x-kubernetes-validations`), on an object that the schema itself allows.
//!
//! All rules of the nine kinds at v1.7.0 are checked; a test holds that each compiles. A rule whose evaluation fails is
//! passed over, where the API server would refuse the object: a difference between two evaluators must not turn
//! into a false error. Rules about the change of an object (`oldSelf`) do not concern a new one. There is no cost limit: the
//! schema bounds every list.
//!
//! **Invariant:** pure.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use cel::extractors::This;
use cel::objects::Key;
use cel::{Context, Env, ExecutionError, Program, Value as CelValue};
use regex::Regex;
use serde_json::Value;

use super::path::FieldPath;
use super::report::Report;

const KEYWORD: &str = "x-kubernetes-validations";
/// Field names that CEL reserves, which the API server writes with underscores around them.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    env.add_extension(cel::extensions::strings)
        .expect("the extension and the library name different functions");
    Arc::new(env)
});

/// Expressions that rules match with. They are those of the schemas, few; should one be made of an object's own text,
/// which no rule does today, it is compiled anew each time once this many are kept.
const MAX_EXPRESSIONS: usize = 64;
static EXPRESSIONS: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);

/// The compiled rules of one schema.
pub(super) struct Rules(HashMap<String, Program>);

/// One place in an object that is being checked.
struct Check<'a, 'r> {
    rules: &'a Rules,
    context: Context<'a, 'a>,
    report: &'a mut Report<'r>,
}

// === impl Rules ===

impl Rules {
    /// Those that do not compile are not checked.
    pub(super) fn new(schema: &Value) -> Self {
        let compiled =
            texts(schema).into_iter().filter_map(|rule| Some((rule.to_owned(), ENV.compile(rule).ok()?)));
        Self(compiled.collect())
    }

    pub(super) fn check(&self, schema: &Value, object: &Value, report: &mut Report<'_>) {
        let mut context = Context::with_env(Arc::clone(&ENV));
        context
            .add_function("isIP", |text: Arc<String>| text.parse::<IpAddr>().is_ok())
            .expect("the library has no function isIP");
        context
            .add_function("duration", |text: Arc<String>| duration_ms(&text).unwrap_or(-1))
            .expect("without its clock feature the library has no function duration");
        context.add_function("matchesKept", matches).expect("the library has no function matchesKept");
        Check { rules: self, context, report }.visit(schema, object, &FieldPath::default());
    }

    #[cfg(test)]
    fn n_compiled(&self) -> usize {
        self.0.len()
    }
}

/// All rules in a schema that can apply to a new object.
fn texts(schema: &Value) -> Vec<&str> {
    match schema {
        Value::Object(keywords) => {
            let own = keywords.get(KEYWORD).and_then(Value::as_array).into_iter().flatten();
            let own =
                own.filter_map(|rule| rule.get("rule")?.as_str()).filter(|rule| !rule.contains("oldSelf"));
            own.chain(keywords.values().flat_map(texts)).collect()
        }
        Value::Array(schemas) => schemas.iter().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

// === impl Check ===

impl Check<'_, '_> {
    /// Checks what `value` holds, then `value`; returns it as CEL sees it.
    fn visit(&mut self, schema: &Value, value: &Value, path: &FieldPath) -> CelValue {
        let made = match value {
            Value::Null => CelValue::Null,
            Value::Bool(value) => CelValue::Bool(*value),
            Value::Number(number) => number
                .as_i64()
                .map_or_else(|| CelValue::Float(number.as_f64().unwrap_or_default()), CelValue::Int),
            Value::String(text) => CelValue::from(text.as_str()),
            Value::Array(items) => {
                let schema = schema.get("items").unwrap_or(&Value::Null);
                let items = items.iter().enumerate();
                CelValue::from(
                    items
                        .map(|(index, item)| self.visit(schema, item, &path.index(index)))
                        .collect::<Vec<_>>(),
                )
            }
            Value::Object(fields) => {
                let properties = schema.get("properties");
                let additional = schema.get("additionalProperties").unwrap_or(&Value::Null);
                let fields = fields.iter().map(|(name, value)| {
                    let property = properties.and_then(|properties| properties.get(name));
                    let key = if property.is_some() && RESERVED.contains(&name.as_str()) {
                        format!("__{name}__")
                    } else {
                        name.clone()
                    };
                    (Key::from(key), self.visit(property.unwrap_or(additional), value, &path.field(name)))
                });
                CelValue::from(fields.collect::<HashMap<_, _>>())
            }
        };
        for rule in schema.get(KEYWORD).and_then(Value::as_array).into_iter().flatten() {
            self.evaluate(rule, &made, path);
        }
        made
    }

    fn evaluate(&mut self, rule: &Value, value: &CelValue, path: &FieldPath) {
        let text = rule.get("rule").and_then(Value::as_str).unwrap_or_default();
        let Some(program) = self.rules.0.get(text) else { return };
        let mut context = self.context.new_inner_scope();
        context.add_variable_from_value("self", value.clone());
        let result = program.execute(&context);
        drop(context);
        if result == Ok(CelValue::Bool(false)) {
            let path = match rule.get("fieldPath").and_then(Value::as_str) {
                Some(field) => {
                    path.join(FieldPath::from(field.trim_start_matches('.')).segments().iter().cloned())
                }
                None => path.clone(),
            };
            let message = rule.get("message").and_then(Value::as_str);
            self.report
                .error(&path, message.map_or_else(|| format!("breaks the rule {text}"), str::to_owned));
        }
    }
}

fn matches(This(text): This<Arc<String>>, expression: Arc<String>) -> Result<bool, ExecutionError> {
    // A panic while it was held cannot have left it half changed.
    let mut kept = EXPRESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = kept.get(expression.as_str()) {
        return Ok(regex.is_match(&text));
    }
    let regex = Regex::new(&expression)
        .map_err(|error| ExecutionError::function_error("matches", error.to_string()))?;
    let is_match = regex.is_match(&text);
    if kept.len() < MAX_EXPRESSIONS {
        kept.insert(expression.to_string(), regex);
    }
    Ok(is_match)
}

/// A duration of the Gateway API (GEP-2257): up to four of hours, minutes, seconds and milliseconds.
fn duration_ms(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let unit = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, after) = after.split_at(unit);
        let unit_ms = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1000,
            "ms" => 1,
            _ => return None,
        };
        total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(unit_ms)?)?;
        rest = after;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Rules, duration_ms, texts};

    #[test]
    fn every_rule_compiles() {
        let mut n_rules = 0;
        for schema in [
            "backendtlspolicies",
            "gateways",
            "grpcroutes",
            "httproutes",
            "listenersets",
            "referencegrants",
            "tcproutes",
            "tlsroutes",
            "udproutes",
        ] {
            let path = format!("{}/schemas/{schema}.json", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read(path).expect("a schema");
            let schema = serde_json::from_slice(&text).expect("a schema is JSON");
            let distinct: BTreeSet<_> = texts(&schema).into_iter().collect();
            assert_eq!(Rules::new(&schema).n_compiled(), distinct.len());
            n_rules += distinct.len();
        }
        assert!(n_rules > 60, "{n_rules}");
    }

    #[test]
    fn durations_are_compared_by_length() {
        assert_eq!(duration_ms("1h2m3s4ms"), Some(3_723_004));
        assert_eq!(duration_ms("60s"), duration_ms("1m"));
        assert_eq!(duration_ms("0s"), Some(0));
        for bad in ["1", "s", "1d", "-1s", "1.5s", "9999999999999999h"] {
            assert_eq!(duration_ms(bad), None, "{bad}");
        }
    }
}
