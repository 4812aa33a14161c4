//! Certificates of TLS listeners and of Gateways towards backends: a chain and its key, checked to belong together and
//! ready to serve; and the [`Authorities`] that those of others are verified by.
//!
//! **Invariant:** pure. Does not judge validity in time or who signed: clients do, and a listener that would stop at
//! its certificate's end would hide the reason from them. The key is never shown.

mod authorities;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub use authorities::{Authorities, AuthoritiesError};
use rustls::InconsistentKeys;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

/// Certificates of one chain. Public chains have 2 to 4; TLS stacks give up at about 10.
const CHAIN_MAX: usize = 16;

/// What TLS listeners present. Equal by its chain: the key of a certificate is determined by it.
#[derive(Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    names: Arc<[Arc<str>]>,
}

/// Why PEM texts make no certificate. Never holds a part of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    #[error("the certificate is not valid PEM: {0}")]
    ChainPem(String),
    #[error("there is no PEM block CERTIFICATE")]
    NoCertificate,
    #[error("the chain has more than {CHAIN_MAX} certificates")]
    ChainTooLong,
    #[error("the certificate cannot be read: {0}")]
    Malformed(String),
    #[error("the key is not valid PEM: {0}")]
    KeyPem(String),
    #[error("there is no PEM block PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY")]
    NoKey,
    #[error(
        "the key is of no supported type: RSA of 2048 to 8192 bits, ECDSA P-256, P-384 or P-521, Ed25519"
    )]
    UnsupportedKey,
    #[error("the key does not belong to the certificate")]
    KeyMismatch,
}

/// How well a certificate fits a server name; the greater is the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// By a wildcard.
    Wildcard,
    Exact,
}

impl Certificate {
    /// Of `tls.crt` and `tls.key`: the server's certificate first, then those between it and a root.
    pub fn parse(chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, CertificateError> {
        let mut chain = Vec::new();
        for one in CertificateDer::pem_slice_iter(chain_pem) {
            chain.push(one.map_err(|error| CertificateError::ChainPem(pem_text(&error)))?);
            if chain.len() > CHAIN_MAX {
                return Err(CertificateError::ChainTooLong);
            }
        }
        let own = chain.first().ok_or(CertificateError::NoCertificate)?;
        let names = names(own)?;
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| match error {
            pem::Error::NoItemsFound => CertificateError::NoKey,
            other => CertificateError::KeyPem(pem_text(&other)),
        })?;
        let key = any_supported_type(&key).map_err(|_unsupported| CertificateError::UnsupportedKey)?;
        let key = CertifiedKey::new(chain, key);
        key.keys_match().map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch | InconsistentKeys::Unknown) => {
                CertificateError::KeyMismatch
            }
            other => CertificateError::Malformed(other.to_string()),
        })?;
        Ok(Self { key: Arc::new(key), names })
    }

    /// The DNS names that it is for, in lower case; a wildcard as `*.example.com`. Its common name does not count.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Whether it is for `server_name`, which is in lower case. A wildcard stands for exactly one label here, as
    /// clients read it (RFC 9525 section 6.3).
    pub fn fit(&self, server_name: &str) -> Option<Fit> {
        let parent = server_name.split_once('.').map(|(_, parent)| parent);
        let fit = |name: &Arc<str>| match name.strip_prefix("*.") {
            Some(suffix) => (parent == Some(suffix)).then_some(Fit::Wildcard),
            None => (**name == *server_name).then_some(Fit::Exact),
        };
        self.names.iter().filter_map(fit).max()
    }

    pub const fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.key, &other.key) || self.key.cert == other.key.cert
    }
}

impl Eq for Certificate {}

impl Hash for Certificate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Its own certificate holds a serial number and a public key: enough to tell it from others.
        self.key.cert.first().map(|own| own.as_ref()).hash(state);
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_chain = self.key.cert.len();
        f.debug_struct("Certificate")
            .field("names", &self.names)
            .field("n_chain", &n_chain)
            .finish_non_exhaustive()
    }
}

fn names(certificate: &CertificateDer<'_>) -> Result<Arc<[Arc<str>]>, CertificateError> {
    let malformed = |error: webpki::Error| {
        let text = match error {
            webpki::Error::UnsupportedCertVersion => "it is of X.509 version 1; version 3 is needed".into(),
            other => other.to_string(),
        };
        CertificateError::Malformed(text)
    };
    let parsed = EndEntityCert::try_from(certificate).map_err(malformed)?;
    Ok(parsed.valid_dns_names().map(|name| name.to_ascii_lowercase().into()).collect())
}

/// Without a piece of the text, which may be of the key.
fn pem_text(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a block has no end".into(),
        pem::Error::IllegalSectionStart { .. } => "a block begins in no legal way".into(),
        pem::Error::Base64Decode(_) => "a block is not base64".into(),
        _ => "it cannot be read".into(),
    }
}
