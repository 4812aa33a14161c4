//! What differs between two sets of statuses.
//!
//! **Invariant:** pure. Both sets are in kind, namespace and name order.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Target;
use crate::status::ObjectStatus;

pub(super) enum Change<'a> {
    Removed(&'a ObjectStatus),
    Updated { old: Option<&'a ObjectStatus>, new: &'a ObjectStatus },
}

fn order(one: &ObjectStatus, other: &ObjectStatus) -> Ordering {
    (one.kind, &one.name).cmp(&(other.kind, &other.name))
}

/// Statuses that are the same in memory are not looked at.
pub(super) fn changes<'a>(old: &'a [Arc<ObjectStatus>], new: &'a [Arc<ObjectStatus>]) -> Vec<Change<'a>> {
    debug_assert!(
        new.is_sorted_by(|one, other| order(one, other) == Ordering::Less),
        "each object once, in order"
    );
    let mut changes = Vec::new();
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let ordering = match (old.peek(), new.peek()) {
            (None, None) => return changes,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            // Nearly all of thousands: their names need not be compared.
            (Some(one), Some(other)) if Arc::ptr_eq(one, other) => Ordering::Equal,
            (Some(one), Some(other)) => order(one, other),
        };
        let old = old.next_if(|_| ordering != Ordering::Greater);
        let new = new.next_if(|_| ordering != Ordering::Less);
        match (old, new) {
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) || old == new => {}
            (old, Some(new)) => changes.push(Change::Updated { old: old.map(|old| &**old), new }),
            (Some(old), None) => changes.push(Change::Removed(old)),
            (None, None) => return changes,
        }
    }
}

pub(super) fn find<'a>(statuses: &'a [Arc<ObjectStatus>], target: &Target) -> Option<&'a Arc<ObjectStatus>> {
    let order = |status: &Arc<ObjectStatus>| (status.kind, &status.name).cmp(&(target.kind, &target.name));
    statuses.binary_search_by(order).ok().and_then(|index| statuses.get(index))
}
