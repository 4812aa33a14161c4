//! Joins conditions with acknowledgements.

use super::{Applied, ObjectStatus};

/// `statuses` as the user sees them, once `proxy` and, where there is one, `kernel` acknowledged.
pub fn join(statuses: &[ObjectStatus], _proxy: &Applied, _kernel: Option<&Applied>) -> Vec<ObjectStatus> {
    statuses.to_vec()
}
