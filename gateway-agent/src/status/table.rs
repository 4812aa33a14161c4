//! Prints conditions as a table.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::differences::{Difference, differences};
use super::names::kind;
use super::{Condition, ConditionStatus, ObjectStatus, ParentKind, Scope, ScopeStatus, StatusList};
use crate::snapshot::ObjectName;

const HEADER: [&str; COLUMNS] =
    ["KIND", "NAMESPACE/NAME", "SCOPE", "CONDITION", "STATUS", "REASON", "MESSAGE"];
const COLUMNS: usize = 7;

type Row = [String; COLUMNS];

/// What differs between two sets of statuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// New ones, and those of which anything differs, whole.
    pub updated: Vec<Arc<ObjectStatus>>,
    pub removed: Vec<(&'static str, ObjectName)>,
}

impl Changes {
    pub const fn is_empty(&self) -> bool {
        self.updated.is_empty() && self.removed.is_empty()
    }

    /// The table of what was updated, and a line for each object that is gone.
    pub fn render(&self) -> String {
        let mut text = if self.updated.is_empty() { String::new() } else { render(&self.updated) };
        for (kind, name) in &self.removed {
            text.push_str(&format!("{kind} {name} removed\n"));
        }
        text
    }
}

/// What a reader who has seen `old` has to be shown of `new`.
pub fn changed(old: &StatusList, new: &StatusList) -> Changes {
    let mut changes = Changes::default();
    for difference in differences(old, new) {
        match difference {
            Difference::Removed(status) => changes.removed.push((status.kind, status.name.clone())),
            Difference::Updated { new, .. } => changes.updated.push(new.clone()),
        }
    }
    changes
}

/// One line per condition, columns aligned, ending in a line feed. What a line shares with the one above is left out, and
/// so is Conflicted=False, which says nothing.
pub fn render<'a>(statuses: impl IntoIterator<Item = &'a Arc<ObjectStatus>>) -> String {
    let mut rows = vec![HEADER.map(String::from)];
    for status in statuses {
        rows.extend(object_rows(status));
    }
    let mut widths = [0; COLUMNS];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn object_rows(status: &ObjectStatus) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut head = [status.kind.to_owned(), status.name.to_string()];
    let mut push = |scope: String, rest: [String; 4]| {
        let [kind, name] = std::mem::take(&mut head);
        let [condition, status, reason, message] = rest;
        rows.push([kind, name, scope, condition, status, reason, message]);
    };
    if status.scopes.is_empty() {
        let message = status.unattached().to_owned();
        push("-".into(), ["-".into(), "-".into(), "-".into(), message]);
    }
    for scope in status.scopes.iter() {
        let mut title = scope_title(scope);
        if scope.scope == Scope::Object && !status.addresses().is_empty() {
            let addresses: Vec<String> = status.addresses().iter().map(ToString::to_string).collect();
            push("addresses".into(), ["-".into(), "-".into(), "-".into(), addresses.join(", ")]);
        }
        let is_worth_a_line = |condition: &&Condition| {
            condition.kind != kind::CONFLICTED || condition.status != ConditionStatus::False
        };
        for condition in scope.conditions.iter().filter(is_worth_a_line) {
            push(
                std::mem::take(&mut title),
                [
                    condition.kind.into(),
                    status_text(condition.status).into(),
                    condition.reason.into(),
                    one_line(&condition.message),
                ],
            );
        }
    }
    rows
}

fn scope_title(scope: &ScopeStatus) -> String {
    match &scope.scope {
        Scope::Object => "-".into(),
        Scope::Listener(section) => match scope.attached_routes() {
            1 => format!("{section} (1 route)"),
            n => format!("{section} ({n} routes)"),
        },
        Scope::Parent { parent, section, port, .. } => {
            let mut title = match parent.kind {
                ParentKind::Gateway => parent.name.to_string(),
                ParentKind::ListenerSet => format!("ListenerSet {}", parent.name),
            };
            if let Some(section) = section {
                title.push_str(&format!("/{section}"));
            }
            if let Some(port) = port {
                title.push_str(&format!(":{port}"));
            }
            title
        }
        Scope::Ancestor { gateway } => gateway.to_string(),
    }
}

pub(super) const fn status_text(status: ConditionStatus) -> &'static str {
    match status {
        ConditionStatus::False => "False",
        ConditionStatus::True => "True",
        ConditionStatus::Unknown => "Unknown",
    }
}

/// Names in messages come from manifests; a line break in one must not look like a row.
fn one_line(message: &str) -> String {
    message.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}
