//! References to certificate authorities: ConfigMaps with certificates under `ca.crt`.

use std::sync::Arc;

use super::inputs::Inputs;
use super::parsed::ParsedOnce;
use crate::certificate::Authorities;
use crate::snapshot::ObjectName;
use crate::store::objects::ConfigMap;

/// The key that the spec names.
const KEY: &str = "ca.crt";

/// What ConfigMaps hold, parsed once each.
#[derive(Debug, Default)]
pub(super) struct Maps(ParsedOnce<ConfigMap, Authorities>);

impl Maps {
    /// Drops those that were not asked for since this was last called.
    pub(super) fn sweep(&mut self) {
        self.0.sweep();
    }

    /// The authorities in the ConfigMap `name`, or why there are none.
    pub(super) fn get(&mut self, inputs: &Inputs<'_>, name: &ObjectName) -> Result<Arc<Authorities>, String> {
        let Some(map) = inputs.config_map(name) else {
            return Err(format!("ConfigMap {name} does not exist"));
        };
        self.0.get(name, map, parse)
    }
}

fn parse(name: &ObjectName, map: &ConfigMap) -> Result<Arc<Authorities>, String> {
    let text = map.data.get(KEY).ok_or_else(|| format!("ConfigMap {name} has no {KEY}"))?;
    let parsed = Authorities::parse(text.as_bytes()).map(Arc::new);
    parsed.map_err(|error| format!("ConfigMap {name}: {KEY} {error}"))
}
