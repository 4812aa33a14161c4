//! JSON to a Kubernetes type, with the path of every unknown field and of the first wrong one.
//!
//! **Invariant:** pure.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::path::{FieldPath, Segment};
use super::report::Report;
use super::schema::BOOLEAN_HINT;

/// `value`, which is the field `path` of an object, as a `T`; reports why not.
pub(super) fn read<T: DeserializeOwned>(
    value: &Value,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<T> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    let mut note = |ignored: serde_ignored::Path<'_>| unknown.push(segments(&ignored));
    let result = T::deserialize(serde_ignored::Deserializer::new(tracked, &mut note));
    for segments in unknown {
        report.error(&path.join(segments), "unknown field");
    }
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            report.error(&path.join(of_track(&track.path())), message(&error.to_string()));
            None
        }
    }
}

fn message(error: &str) -> String {
    if error.starts_with("invalid type: boolean") && error.ends_with("expected a string") {
        return format!("{error}{BOOLEAN_HINT}");
    }
    // The only errors that begin so are those of the base64 decoder, which does not say what it decodes.
    if error.starts_with("Invalid ") { format!("not base64: {error}") } else { error.to_owned() }
}

fn segments(path: &serde_ignored::Path<'_>) -> Vec<Segment> {
    use serde_ignored::Path;
    let (parent, segment) = match path {
        Path::Root => return Vec::new(),
        Path::Seq { parent, index } => (parent, Some(Segment::Index(*index))),
        Path::Map { parent, key } => (parent, Some(Segment::Field(key.clone()))),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            (parent, None)
        }
    };
    let mut all = segments(parent);
    all.extend(segment);
    all
}

fn of_track(path: &serde_path_to_error::Path) -> Vec<Segment> {
    use serde_path_to_error::Segment as Tracked;
    path.iter()
        .filter_map(|segment| match segment {
            Tracked::Seq { index } => Some(Segment::Index(*index)),
            Tracked::Map { key } => Some(Segment::Field(key.clone())),
            Tracked::Enum { .. } | Tracked::Unknown => None,
        })
        .collect()
}
