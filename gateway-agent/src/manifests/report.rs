//! Collects the findings of one object, and knows where in its file each field is.
//!
//! **Invariant:** pure.

use std::sync::Arc;

use super::path::{FieldPath, Segment};
use super::yaml::Node;
use super::{Finding, Place, Severity};

/// Where an object is written: the document's nodes, and the path to the object in them, which a `List` makes longer.
pub(super) struct Report<'a> {
    file: &'a Arc<str>,
    document: usize,
    root: &'a Node,
    prefix: FieldPath,
    findings: &'a mut Vec<Finding>,
    n_errors: usize,
}

impl<'a> Report<'a> {
    pub(super) const fn new(
        file: &'a Arc<str>,
        document: usize,
        root: &'a Node,
        prefix: FieldPath,
        findings: &'a mut Vec<Finding>,
    ) -> Self {
        Self { file, document, root, prefix, findings, n_errors: 0 }
    }

    pub(super) fn error(&mut self, path: &FieldPath, message: impl Into<String>) {
        self.n_errors += 1;
        self.add(path, Severity::Error, message.into());
    }

    pub(super) fn warning(&mut self, path: &FieldPath, message: impl Into<String>) {
        self.add(path, Severity::Warning, message.into());
    }

    pub(super) const fn has_errors(&self) -> bool {
        self.n_errors > 0
    }

    pub(super) fn place(&self) -> Place {
        Place {
            file: Arc::clone(self.file),
            line: self.root.line_of(&self.prefix),
            document: self.document,
            prefix: self.prefix.to_string(),
        }
    }

    fn add(&mut self, path: &FieldPath, severity: Severity, message: String) {
        let path = self.full(path.segments());
        self.findings.push(Finding {
            file: Arc::clone(self.file),
            line: self.root.line_of(&path),
            document: self.document,
            field: path.to_string(),
            severity,
            message,
        });
    }

    fn full(&self, segments: &[Segment]) -> FieldPath {
        self.prefix.join(segments.iter().cloned())
    }
}
