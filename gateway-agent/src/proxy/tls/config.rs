//! What a TLS listener offers: versions, keys, certificates, tickets. One configuration per set of terms in the whole
//! process, so that a session begun on one worker is resumed on any other.
//!
//! Where clients' certificates are validated there are no tickets: each connection is validated anew, and none goes on
//! after a certificate has expired or its authority was taken away.
//!
//! No I/O but the randomness of ticket keys.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, Ticketer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SignatureScheme};

use super::clients::Clients;
use crate::certificate::Certificate;
use crate::snapshot::TlsTerms;

/// What is spoken within TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::proxy) enum Application {
    /// Towards backends HTTP/1.1.
    Http,
    /// The version of that number alone.
    Http2,
    /// Bytes that are passed on: whatever client and backend agree upon.
    Opaque,
}

/// The versions of HTTP, the preferred one first.
const HTTP: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What a backend is asked for: what its Service says that it speaks.
const HTTP_1: [&[u8]; 1] = [b"http/1.1"];
const HTTP_2: [&[u8]; 1] = [b"h2"];

impl Application {
    /// What a client may ask for; none: whatever it asks for is not answered.
    fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http | Self::Http2 => HTTP.iter().map(|protocol| protocol.to_vec()).collect(),
            Self::Opaque => Vec::new(),
        }
    }

    /// What a backend is asked for.
    pub(super) fn upstream_protocols(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http => HTTP_1.iter().map(|protocol| protocol.to_vec()).collect(),
            Self::Http2 => HTTP_2.iter().map(|protocol| protocol.to_vec()).collect(),
            Self::Opaque => Vec::new(),
        }
    }
}

/// How TLS ends at one listener.
#[derive(Debug)]
pub(in crate::proxy) struct Termination {
    pub(super) config: Arc<ServerConfig>,
    /// Judges the certificates of clients that come in whatever they show.
    pub(super) judge: Option<Arc<dyn ClientCertVerifier>>,
}

type Key = (TlsTerms, Application);

/// The configurations in use, shared by all workers. Looked into once per worker and change of terms.
#[derive(Debug)]
pub(in crate::proxy) struct Configs {
    /// Prefers X25519MLKEM768, then X25519.
    provider: Arc<CryptoProvider>,
    in_use: Mutex<HashMap<Key, Weak<Termination>>>,
}

impl Default for Configs {
    fn default() -> Self {
        Self { provider: Arc::new(aws_lc_rs::default_provider()), in_use: Mutex::default() }
    }
}

impl Configs {
    /// The configuration for these terms. Fails where the system gives no randomness.
    pub(in crate::proxy) fn of(
        &self,
        terms: &TlsTerms,
        application: Application,
    ) -> Result<Arc<Termination>, rustls::Error> {
        let key = (terms.clone(), application);
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(termination) = in_use.get(&key).and_then(Weak::upgrade) {
            return Ok(termination);
        }
        in_use.retain(|_, termination| termination.strong_count() > 0);
        let termination = Arc::new(self.build(terms, application)?);
        in_use.insert(key, Arc::downgrade(&termination));
        Ok(termination)
    }

    fn build(&self, terms: &TlsTerms, application: Application) -> Result<Termination, rustls::Error> {
        let clients =
            terms.clients.as_deref().map(|trust| Clients::new(trust, &self.provider)).transpose()?;
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13, &TLS12])?;
        let builder = match &clients {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(clients.verifier.clone()),
        };
        let mut config = builder.with_cert_resolver(Arc::new(ByName(terms.certificates.clone())));
        config.alpn_protocols = application.protocols();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if clients.is_some() {
            config.send_tls13_tickets = 0;
        } else {
            // Tickets hold the session at the client, encrypted by a key that changes every few hours. A key per
            // configuration, so that no session passes from one listener's terms to another's.
            config.ticketer = Ticketer::new()?;
        }
        Ok(Termination { config: Arc::new(config), judge: clients.and_then(|clients| clients.judge) })
    }
}

#[derive(Debug)]
struct ByName(Arc<[Arc<Certificate>]>);

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

    use super::{Application, Configs, choose};
    use crate::certificate::{Authorities, Certificate};
    use crate::snapshot::{ClientTrust, TlsTerms};

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
        let of = |members: &[&Arc<Certificate>]| {
            let certificates = members.iter().copied().cloned().collect();
            configs.of(&TlsTerms { certificates, clients: None }, Application::Http).unwrap()
        };
        let first = of(&[&one]);
        assert!(Arc::ptr_eq(&first, &of(&[&one])));
        assert!(!Arc::ptr_eq(&first, &of(&[&one, &other])));
        drop(first);
        of(&[&other]);
        // The last one was dropped at once, as was the pair's.
        assert_eq!(configs.in_use.lock().unwrap().len(), 1);
    }

    #[test]
    fn terms_that_differ_share_no_configuration_and_validation_has_no_tickets() {
        let configs = Configs::default();
        let certificates: Arc<[Arc<Certificate>]> = [ecdsa(&["a"])].into();
        let trust = |name: &str, allows_insecure_fallback| {
            let key = KeyPair::generate().unwrap();
            let root = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
            let authorities = Arc::new(Authorities::parse(root.pem().as_bytes()).unwrap());
            Arc::new(ClientTrust { authorities, allows_insecure_fallback })
        };
        let terms = |clients| TlsTerms { certificates: certificates.clone(), clients };
        let open = configs.of(&terms(None), Application::Http).unwrap();
        assert!(open.config.ticketer.enabled());
        assert!(!Arc::ptr_eq(&open, &configs.of(&terms(None), Application::Opaque).unwrap()));
        for (is_lax, name) in [(false, "a"), (true, "b")] {
            let strict = configs.of(&terms(Some(trust(name, is_lax))), Application::Http).unwrap();
            let other = configs.of(&terms(Some(trust(name, is_lax))), Application::Http).unwrap();
            assert!(!Arc::ptr_eq(&strict, &other), "the authorities differ");
            assert!(!strict.config.ticketer.enabled());
            assert_eq!(strict.config.send_tls13_tickets, 0);
            assert_eq!(strict.judge.is_some(), is_lax);
        }
    }
}
