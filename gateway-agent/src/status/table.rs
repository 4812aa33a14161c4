//! Prints conditions as a table.

use super::ObjectStatus;

pub fn render(statuses: &[ObjectStatus]) -> String {
    let _ = statuses;
    String::new()
}
