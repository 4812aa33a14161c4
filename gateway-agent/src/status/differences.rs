//! Lists of statuses, one for each object: what is in them, and what differs between two.
//!
//! **Invariant:** pure. Lists are in kind, namespace and name order.

use std::cmp::Ordering;
use std::sync::Arc;

use super::ObjectStatus;
use crate::snapshot::ObjectName;

pub(super) enum Difference<'a> {
    Removed(&'a Arc<ObjectStatus>),
    Updated { old: Option<&'a Arc<ObjectStatus>>, new: &'a Arc<ObjectStatus> },
}

fn order(one: &ObjectStatus, other: &ObjectStatus) -> Ordering {
    (one.kind, &one.name).cmp(&(other.kind, &other.name))
}

/// In the order of the lists. Statuses that are the same in memory are not looked at.
pub(super) fn differences<'a>(
    old: &'a [Arc<ObjectStatus>],
    new: &'a [Arc<ObjectStatus>],
) -> Vec<Difference<'a>> {
    debug_assert!(
        new.is_sorted_by(|one, other| order(one, other) == Ordering::Less),
        "each object once, in order"
    );
    let mut differences = Vec::new();
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let ordering = match (old.peek(), new.peek()) {
            (None, None) => return differences,
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
            (old, Some(new)) => differences.push(Difference::Updated { old, new }),
            (Some(old), None) => differences.push(Difference::Removed(old)),
            (None, None) => return differences,
        }
    }
}

/// Where the status of an object is, else where it would have to be.
pub fn position(list: &[Arc<ObjectStatus>], kind: &str, name: &ObjectName) -> Result<usize, usize> {
    list.binary_search_by(|status| (status.kind, &status.name).cmp(&(kind, name)))
}

/// The status of an object.
pub fn find<'a>(
    list: &'a [Arc<ObjectStatus>],
    kind: &str,
    name: &ObjectName,
) -> Option<&'a Arc<ObjectStatus>> {
    position(list, kind, name).ok().and_then(|index| list.get(index))
}
