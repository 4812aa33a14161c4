//! The accepted objects in a compact form of our own.
//!
//! **Invariant:** no I/O. API types are converted on the way in and dropped.

use crate::api::Object;

#[derive(Debug, Default)]
pub struct Store {}

impl Store {
    /// Replaces all objects; later objects are younger where `creationTimestamp` is absent. True when anything changed.
    pub fn replace_all(&mut self, objects: &[Object]) -> bool {
        !objects.is_empty()
    }
}
