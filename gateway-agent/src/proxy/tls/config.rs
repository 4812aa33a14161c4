//! What a TLS listener offers: versions, keys, certificates, tickets. One configuration per set of certificates in the
//! whole process, so that a session begun on one worker is resumed on any other.
//!
//! No I/O but the randomness of ticket keys.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, Ticketer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SignatureScheme};

use crate::certificate::Certificate;

/// A listener's certificates, in its order.
pub(in crate::proxy) type Certificates = Arc<[Arc<Certificate>]>;

/// What a client may ask for after the handshake.
const PROTOCOLS: [&[u8]; 1] = [b"http/1.1"];

/// The configurations in use, shared by all workers. Looked into once per worker and change of certificates.
#[derive(Debug)]
pub(in crate::proxy) struct Configs {
    /// Prefers X25519MLKEM768, then X25519.
    provider: Arc<CryptoProvider>,
    in_use: Mutex<HashMap<Certificates, Weak<ServerConfig>>>,
}

impl Default for Configs {
    fn default() -> Self {
        Self { provider: Arc::new(aws_lc_rs::default_provider()), in_use: Mutex::default() }
    }
}

impl Configs {
    /// The configuration for these certificates. Fails where the system gives no randomness.
    pub(in crate::proxy) fn of(
        &self,
        certificates: &Certificates,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = in_use.get(certificates).and_then(Weak::upgrade) {
            return Ok(config);
        }
        in_use.retain(|_, config| config.strong_count() > 0);
        let config = Arc::new(self.build(certificates)?);
        in_use.insert(certificates.clone(), Arc::downgrade(&config));
        Ok(config)
    }

    fn build(&self, certificates: &Certificates) -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13, &TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ByName(certificates.clone())));
        config.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
        // Tickets hold the session at the client, encrypted by a key that changes every few hours. A key per
        // configuration, so that no session passes from one listener's terms to another's.
        config.ticketer = Ticketer::new()?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(config)
    }
}

#[derive(Debug)]
struct ByName(Certificates);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificate = choose(&self.0, hello.server_name(), hello.signature_schemes())?;
        Some(certificate.certified_key().clone())
    }
}

/// Of the certificates that the client can verify the one that fits its name best, the first of equals; the first of
/// all where none fits.
fn choose<'c>(
    certificates: &'c [Arc<Certificate>],
    name: Option<&str>,
    schemes: &[SignatureScheme],
) -> Option<&'c Arc<Certificate>> {
    let name = name.unwrap_or_default().to_ascii_lowercase();
    let rank = |certificate: &Certificate| {
        let can_sign = certificate.certified_key().key.choose_scheme(schemes).is_some();
        (can_sign, certificate.fit(&name))
    };
    let (first, others) = certificates.split_first()?;
    let mut best = (rank(first), first);
    for certificate in others {
        let rank = rank(certificate);
        if rank > best.0 {
            best = (rank, certificate);
        }
    }
    Some(best.1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, SignatureAlgorithm};
    use rustls::SignatureScheme::{ECDSA_NISTP256_SHA256, RSA_PSS_SHA256};

    use super::{Certificates, Configs, choose};
    use crate::certificate::Certificate;

    fn certificate(names: &[&str], algorithm: &'static SignatureAlgorithm) -> Arc<Certificate> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate_for(algorithm).unwrap();
        let chain = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        Arc::new(Certificate::parse(chain.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap())
    }

    fn ecdsa(names: &[&str]) -> Arc<Certificate> {
        certificate(names, &PKCS_ECDSA_P256_SHA256)
    }

    #[test]
    fn certificate_is_chosen_by_name_and_the_first_is_the_default() {
        let all = [ecdsa(&["a.example.com"]), ecdsa(&["*.example.com"]), ecdsa(&["b.example.com", "c.org"])];
        for (name, expected) in [
            (Some("a.example.com"), 0),
            (Some("B.Example.com"), 2),
            (Some("x.example.com"), 1),
            (Some("c.org"), 2),
            (Some("x.y.example.com"), 0),
            (None, 0),
        ] {
            let chosen = choose(&all, name, &[ECDSA_NISTP256_SHA256]).unwrap();
            assert!(Arc::ptr_eq(chosen, &all[expected]), "{name:?}");
        }
        assert!(choose(&[], Some("a"), &[ECDSA_NISTP256_SHA256]).is_none());
    }

    #[test]
    fn client_gets_a_certificate_that_it_can_verify() {
        let all = [ecdsa(&["a"]), certificate(&["a"], &PKCS_RSA_SHA256)];
        for (scheme, expected) in [(ECDSA_NISTP256_SHA256, 0), (RSA_PSS_SHA256, 1)] {
            assert!(Arc::ptr_eq(choose(&all, Some("a"), &[scheme]).unwrap(), &all[expected]), "{scheme:?}");
        }
    }

    #[test]
    fn equal_sets_share_a_configuration_while_it_is_in_use() {
        let configs = Configs::default();
        let (one, other) = (ecdsa(&["a"]), ecdsa(&["b"]));
        let set =
            |members: &[&Arc<Certificate>]| -> Certificates { members.iter().copied().cloned().collect() };
        let first = configs.of(&set(&[&one])).unwrap();
        assert!(Arc::ptr_eq(&first, &configs.of(&set(&[&one])).unwrap()));
        assert!(!Arc::ptr_eq(&first, &configs.of(&set(&[&one, &other])).unwrap()));
        drop(first);
        configs.of(&set(&[&other])).unwrap();
        // The last one was dropped at once, as was the pair's.
        assert_eq!(configs.in_use.lock().unwrap().len(), 1);
    }
}
