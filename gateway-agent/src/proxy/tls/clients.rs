//! Validation of clients' certificates.
//!
//! In the strict mode a client without a valid certificate ends in its handshake, by an alert. In the insecure fallback
//! the handshake takes any client; whether its certificate is valid is looked at afterwards, and told.

use std::sync::Arc;

use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConnection, SignatureScheme,
    client::danger::HandshakeSignatureValid,
};

use crate::snapshot::ClientTrust;

/// Authorities whose names are told to clients, so that they choose a fitting certificate. Browsers show these; lists of
/// more do not help and make each handshake long.
const HINTS_MAX: usize = 64;

/// How one listener treats clients.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    /// Asked during the handshake.
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    /// Asked after it, of clients that come in anyway.
    pub(super) judge: Option<Arc<dyn ClientCertVerifier>>,
}

impl Clients {
    pub(super) fn new(trust: &ClientTrust, provider: &Arc<CryptoProvider>) -> Result<Self, Error> {
        let roots = Arc::new(trust.authorities.root_store());
        let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
        if trust.authorities.len() > HINTS_MAX {
            builder = builder.clear_root_hint_subjects();
        }
        let strict = builder.build().map_err(|error| Error::General(error.to_string()))?;
        if !trust.allows_insecure_fallback {
            return Ok(Self { verifier: strict, judge: None });
        }
        let algorithms = provider.signature_verification_algorithms;
        Ok(Self { verifier: Arc::new(Anyone { algorithms }), judge: Some(strict) })
    }
}

/// Whether the client has shown a certificate that `judge` takes for valid.
pub(super) fn is_verified(judge: &dyn ClientCertVerifier, session: &ServerConnection) -> bool {
    let Some((own, intermediates)) = session.peer_certificates().and_then(<[_]>::split_first) else {
        return false;
    };
    judge.verify_client_cert(own, intermediates, UnixTime::now()).is_ok()
}

/// Asks for a certificate and takes any, or none. A client that shows one has to hold its key, or the one that is looked
/// at later need not be its own.
#[derive(Debug)]
struct Anyone {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Anyone {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Clients need not look for a certificate that fits.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if is_unreadable(certificate) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if is_unreadable(certificate) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// No key can be had from it, and it is valid for nobody.
fn is_unreadable(certificate: &CertificateDer<'_>) -> bool {
    webpki::EndEntityCert::try_from(certificate).is_err()
}
