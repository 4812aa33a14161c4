//! Standalone mode: a folder of manifests in place of the Kubernetes API.
//!
//! The files `*.yaml`, `*.yml` and `*.json` of one folder are read, not those of folders in it; names that begin with
//! a dot are left alone, which is where Kubernetes keeps the versions of a mounted ConfigMap and editors their copies.
//! A file holds any number of documents, each one object or a `List` of objects. A missing namespace is `default`.
//!
//! Each object is checked as the API server would: Gateway API kinds against the schemas of their CRDs, with
//! the defaults of the schema filled in; core kinds against their types and the rules that bear on what the agent reads. An
//! unknown field, which the API server would drop or refuse, is an error. A kind that the agent knows and does not use is a
//! warning; warnings do not change the exit status of `check`.
//!
//! **Last good state.** An object whose new version is bad keeps the version that was good; a file that cannot be read or
//! parsed keeps all of its objects; so does a folder that vanished. An object that is no longer in a file that is
//! otherwise good is gone. Of two objects of the same kind and name the one already served stays, else the first in order.
//! Objects come by `creationTimestamp`; those without one follow, in the order of file names and documents.
//!
//! **Not checked**, although the API server would: a CEL rule whose evaluation fails (see `rules`; all others are), and
//! what concerns only parts of a cluster that are not here, such as clusterIP, NodePort ranges, selectors and
//! immutability. **Deliberately allowed**, although the API server refuses it: loopback and link-local addresses in
//! an EndpointSlice, which are of use without a cluster.
//!
//! It does not know what an object means: conditions come from `translate`.

mod check;
mod core;
mod folder;
mod kinds;
mod load;
mod meta;
mod names;
mod path;
mod report;
mod rules;
mod scalar;
mod schema;
mod typed;
mod watch;
mod yaml;

use std::fmt;
use std::sync::Arc;

pub use check::{Outcome, check};
pub use folder::{Folder, Reload};
pub use watch::{WatchError, watch};

use crate::api::Object;
pub use crate::api::{Kind, ObjectId};

/// Something the user should know of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The folder's path and the file's name in it; the folder alone when that is the trouble.
    pub file: Arc<str>,
    /// From 1; 0 when it is about the whole file.
    pub line: usize,
    /// From 1; 0 when it is about the whole file.
    pub document: usize,
    /// Such as `spec.rules[0].matches`; empty when it is about the whole document.
    pub field: String,
    pub severity: Severity,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The object, in this version, is not used.
    Error,
    /// The object is used, or is one that the agent has no use for.
    Warning,
}

/// Where an object is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub file: Arc<str>,
    pub line: usize,
    pub document: usize,
    /// Path of the object in its document: empty, or such as `items[3]` in a `List`.
    pub prefix: String,
}

/// What a folder holds at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// Oldest first.
    pub objects: Vec<Object>,
    /// Where each of `objects` is written, in the same order.
    pub places: Vec<(ObjectId, Place)>,
    pub findings: Vec<Finding>,
    /// Whether something could not be read at all, which `findings` names.
    pub unreadable: bool,
}

// === impl Finding ===

impl Finding {
    /// About a whole file or folder.
    pub(crate) fn of_file(file: &Arc<str>, message: impl Into<String>) -> Self {
        Self {
            file: Arc::clone(file),
            line: 0,
            document: 0,
            field: String::new(),
            severity: Severity::Error,
            message: message.into(),
        }
    }
}

/// One line, `file:line: document N: field: message`, without the parts that do not apply.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        if self.document > 0 {
            write!(f, " document {}:", self.document)?;
        }
        if !self.field.is_empty() {
            write!(f, " {}:", self.field)?;
        }
        if self.severity == Severity::Warning {
            write!(f, " warning:")?;
        }
        // A message may quote text of the user's, which may have lines.
        write!(f, " {}", self.message.replace(['\n', '\r'], " "))
    }
}

// === impl Load ===

impl Load {
    /// A finding about a field of an object of this load, for problems that only `translate` sees.
    pub fn finding(
        &self,
        id: &ObjectId,
        field: &str,
        severity: Severity,
        message: impl Into<String>,
    ) -> Option<Finding> {
        let (_, place) = self.places.iter().find(|(candidate, _)| candidate == id)?;
        let field = match (place.prefix.as_str(), field) {
            ("", field) => field.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, field) => format!("{prefix}.{field}"),
        };
        Some(Finding {
            file: Arc::clone(&place.file),
            line: place.line,
            document: place.document,
            field,
            severity,
            message: message.into(),
        })
    }
}

#[cfg(test)]
mod tests;
