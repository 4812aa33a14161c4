//! References to certificate authorities: ConfigMaps with certificates under `ca.crt`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::inputs::Inputs;
use crate::certificate::Authorities;
use crate::snapshot::ObjectName;
use crate::store::objects::ConfigMap;

/// The key that the spec names.
const KEY: &str = "ca.crt";

/// What ConfigMaps hold, parsed once each.
#[derive(Debug, Default)]
pub(super) struct Maps {
    known: BTreeMap<ObjectName, Known>,
}

#[derive(Debug)]
struct Known {
    map: Arc<ConfigMap>,
    parsed: Result<Arc<Authorities>, String>,
    is_in_use: bool,
}

impl Maps {
    /// Drops those that were not asked for since this was last called.
    pub(super) fn sweep(&mut self) {
        self.known.retain(|_, known| std::mem::take(&mut known.is_in_use));
    }

    /// The authorities in the ConfigMap `name`, or why there are none.
    pub(super) fn get(&mut self, inputs: &Inputs<'_>, name: &ObjectName) -> Result<Arc<Authorities>, String> {
        let Some(map) = inputs.config_map(name) else {
            return Err(format!("ConfigMap {name} does not exist"));
        };
        let known = self.known.entry(name.clone()).or_insert_with(|| Known {
            map: map.clone(),
            parsed: parse(name, map),
            is_in_use: true,
        });
        known.is_in_use = true;
        if !Arc::ptr_eq(&known.map, map) {
            known.map = map.clone();
            let parsed = parse(name, map);
            // What says the same goes on as it is.
            if known.parsed != parsed {
                known.parsed = parsed;
            }
        }
        known.parsed.clone()
    }
}

fn parse(name: &ObjectName, map: &ConfigMap) -> Result<Arc<Authorities>, String> {
    let text = map.data.get(KEY).ok_or_else(|| format!("ConfigMap {name} has no {KEY}"))?;
    let parsed = Authorities::parse(text.as_bytes()).map(Arc::new);
    parsed.map_err(|error| format!("ConfigMap {name}: {KEY} {error}"))
}
