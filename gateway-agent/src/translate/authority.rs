//! References to certificate authorities: ConfigMaps with certificates under `ca.crt`.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::inputs::Inputs;
use crate::snapshot::ObjectName;

/// The key that the spec names.
const KEY: &str = "ca.crt";

/// Why no authority can be taken from the ConfigMap `name`.
pub(super) fn check(inputs: &Inputs<'_>, name: &ObjectName) -> Result<(), String> {
    let Some(map) = inputs.config_map(name) else {
        return Err(format!("ConfigMap {name} does not exist"));
    };
    let Some(text) = map.data.get(KEY) else {
        return Err(format!("ConfigMap {name} has no {KEY}"));
    };
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let certificates =
        certificates.map_err(|error| format!("ConfigMap {name}: {KEY} is not PEM: {error}"))?;
    if certificates.is_empty() {
        return Err(format!("ConfigMap {name}: {KEY} holds no certificate"));
    }
    for certificate in &certificates {
        webpki::anchor_from_trusted_cert(certificate)
            .map_err(|error| format!("ConfigMap {name}: {KEY} holds a certificate that is none: {error}"))?;
    }
    Ok(())
}
