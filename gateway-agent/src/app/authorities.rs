//! The system's certificate authorities, for `wellKnownCACertificates: System`.

use std::sync::Arc;

use crate::certificate::Authorities;

/// Those that the machine has, read anew; `SSL_CERT_FILE` and `SSL_CERT_DIR` say where. A change of them holds after a
/// restart. What cannot be read is left out.
pub(super) fn system() -> Option<Arc<Authorities>> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some system certificate authorities cannot be read");
    }
    let authorities = Authorities::readable(found.certs).map(Arc::new);
    let n_authorities = authorities.as_ref().map_or(0, |authorities| authorities.len());
    tracing::debug!(n_authorities, "system certificate authorities");
    authorities
}
