//! The path of a field within an object, as the API server writes it: `spec.rules[0].matches`.
//!
//! **Invariant:** pure. It does not know where in a file the field is: see `yaml::Node::line_of`.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Field(String),
    Index(usize),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldPath(Vec<Segment>);

impl FieldPath {
    pub(super) fn field(&self, name: impl Into<String>) -> Self {
        self.join([Segment::Field(name.into())])
    }

    pub(super) fn index(&self, index: usize) -> Self {
        self.join([Segment::Index(index)])
    }

    pub(super) fn join(&self, segments: impl IntoIterator<Item = Segment>) -> Self {
        Self(self.0.iter().cloned().chain(segments).collect())
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.0
    }
}

/// `metadata.name` for constant paths in checks.
impl From<&str> for FieldPath {
    fn from(dotted: &str) -> Self {
        Self(dotted.split('.').map(|name| Segment::Field(name.to_owned())).collect())
    }
}

impl FromIterator<Segment> for FieldPath {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> Self {
        Self(segments.into_iter().collect())
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                // A key of a map, such as a label: a dot in it would read as a path.
                Segment::Field(name) if name.is_empty() || name.contains(['.', '[', ' ', '/']) => {
                    write!(f, "[{}]", name.escape_debug())?;
                }
                Segment::Field(name) if position == 0 => write!(f, "{}", name.escape_debug())?,
                Segment::Field(name) => write!(f, ".{}", name.escape_debug())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::FieldPath;

    #[test]
    fn paths_read_like_those_of_the_api_server() {
        let path = FieldPath::from("spec.rules").index(0).field("matches").index(12).field("path");
        assert_eq!(path.to_string(), "spec.rules[0].matches[12].path");
        let label = FieldPath::from("metadata.labels").field("example.com/name");
        assert_eq!(label.to_string(), "metadata.labels[example.com/name]");
        assert_eq!(FieldPath::default().index(1).to_string(), "[1]");
    }
}
