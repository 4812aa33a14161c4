//! What objects hold, parsed once each.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::snapshot::ObjectName;

/// Of objects of type `O`, what was parsed, or why it could not be. What is not asked for any more is dropped.
#[derive(Debug)]
pub(super) struct ParsedOnce<O, T> {
    known: BTreeMap<ObjectName, Known<O, T>>,
}

#[derive(Debug)]
struct Known<O, T> {
    object: Arc<O>,
    parsed: Result<Arc<T>, String>,
    is_in_use: bool,
}

impl<O, T> Default for ParsedOnce<O, T> {
    fn default() -> Self {
        Self { known: BTreeMap::new() }
    }
}

impl<O, T: PartialEq> ParsedOnce<O, T> {
    /// What `parse` makes of `object`, which has this name. Called for each version of the object once.
    pub(super) fn get(
        &mut self,
        name: &ObjectName,
        object: &Arc<O>,
        parse: impl Fn(&ObjectName, &O) -> Result<Arc<T>, String>,
    ) -> Result<Arc<T>, String> {
        let known = self.known.entry(name.clone()).or_insert_with(|| Known {
            object: object.clone(),
            parsed: parse(name, object),
            is_in_use: true,
        });
        known.is_in_use = true;
        if !Arc::ptr_eq(&known.object, object) {
            known.object = object.clone();
            let parsed = parse(name, object);
            // What says the same goes on as it is.
            if known.parsed != parsed {
                known.parsed = parsed;
            }
        }
        known.parsed.clone()
    }

    /// Drops what was not asked for since this was last called.
    pub(super) fn sweep(&mut self) {
        self.known.retain(|_, known| std::mem::take(&mut known.is_in_use));
    }
}
