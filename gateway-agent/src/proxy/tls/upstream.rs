//! TLS towards backends: whom a backend has to be, who the agent is to it, and the handshake.
//!
//! What is asked of a backend and shown to it makes an identity. Connections and sessions of one identity are never used
//! for another, so that no request takes the place of one with other terms.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::config::Application;
use crate::certificate::{Authorities, Certificate};
use crate::proxy::stream::{TlsUpstream, Upstream};
use crate::snapshot::{BackendSecurity, BackendTls, EndpointSet, SubjectName};

/// A set of terms on which backends are spoken to by TLS.
#[derive(Debug)]
pub(in crate::proxy) struct Identity {
    /// Not that of any other of the worker, before or after.
    number: u64,
    server_name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl Identity {
    /// Tells connections apart; never 0, which stands for cleartext.
    pub(in crate::proxy) const fn number(&self) -> u64 {
        self.number
    }

    /// Shakes hands with a backend. Has no deadline of its own. Cancellation closes the connection.
    pub(in crate::proxy) async fn shake(&self, socket: TcpStream) -> io::Result<Upstream> {
        let connector = TlsConnector::from(self.config.clone());
        let session: TlsUpstream = connector.connect(self.server_name.clone(), socket).await?;
        Ok(Upstream::Tls(Box::new(session)))
    }
}

/// A backend that is to be spoken to by TLS and cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) struct Unspeakable;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Terms {
    tls: Arc<BackendTls>,
    certificate: Option<Arc<Certificate>>,
    application: Application,
}

/// The identities of one worker. As many as the snapshot has, and those that went since the last new one came.
#[derive(Debug)]
pub(in crate::proxy) struct Identities {
    provider: Arc<CryptoProvider>,
    known: RefCell<HashMap<Terms, Rc<Identity>>>,
    /// Large, and the same for many.
    roots: RefCell<HashMap<Arc<Authorities>, Weak<RootCertStore>>>,
    last: Cell<u64>,
}

impl Default for Identities {
    fn default() -> Self {
        Self {
            provider: Arc::new(aws_lc_rs::default_provider()),
            known: RefCell::default(),
            roots: RefCell::default(),
            last: Cell::new(0),
        }
    }
}

impl Identities {
    /// As whom the endpoints of `set` are spoken to; `None`: in clear. `certificate`: what the agent shows where a
    /// backend asks for it.
    pub(in crate::proxy) fn towards(
        &self,
        set: &EndpointSet,
        certificate: Option<&Arc<Certificate>>,
        application: Application,
    ) -> Result<Option<Rc<Identity>>, Unspeakable> {
        match &set.security {
            BackendSecurity::Cleartext => Ok(None),
            BackendSecurity::Refused => Err(Unspeakable),
            BackendSecurity::Tls(tls) => self.of(tls, certificate, application).map(Some).map_err(|error| {
                tracing::error!(service = %set.service, %error, "cannot configure TLS");
                Unspeakable
            }),
        }
    }

    fn of(
        &self,
        tls: &Arc<BackendTls>,
        certificate: Option<&Arc<Certificate>>,
        application: Application,
    ) -> Result<Rc<Identity>, Error> {
        let terms = Terms { tls: tls.clone(), certificate: certificate.cloned(), application };
        if let Some(identity) = self.known.borrow().get(&terms) {
            return Ok(identity.clone());
        }
        let identity = Rc::new(self.make(&terms)?);
        let mut known = self.known.borrow_mut();
        let mut n_own: HashMap<*const BackendTls, usize> = HashMap::new();
        for terms in known.keys() {
            *n_own.entry(Arc::as_ptr(&terms.tls)).or_default() += 1;
        }
        // The snapshot holds those that are in use.
        known.retain(|terms, _| {
            let n_here = n_own.get(&Arc::as_ptr(&terms.tls)).copied().unwrap_or(0);
            Arc::strong_count(&terms.tls) > n_here
        });
        known.insert(terms, identity.clone());
        Ok(identity)
    }

    fn make(&self, terms: &Terms) -> Result<Identity, Error> {
        let name = ServerName::try_from(terms.tls.server_name.to_string())
            .map_err(|error| Error::General(format!("{}: {error}", terms.tls.server_name)))?;
        let verifier = Verifier {
            provider: self.provider.clone(),
            roots: self.roots(&terms.tls.authorities),
            names: terms.tls.names.clone(),
        };
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13, &TLS12])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &terms.certificate {
            None => builder.with_no_client_auth(),
            Some(certificate) => {
                let own = SingleCertAndKey::from(certificate.certified_key().clone());
                builder.with_client_cert_resolver(Arc::new(own))
            }
        };
        config.alpn_protocols = terms.application.upstream_protocols();
        self.last.set(self.last.get() + 1);
        Ok(Identity { number: self.last.get(), server_name: name, config: Arc::new(config) })
    }

    fn roots(&self, authorities: &Arc<Authorities>) -> Arc<RootCertStore> {
        let mut roots = self.roots.borrow_mut();
        if let Some(store) = roots.get(authorities).and_then(Weak::upgrade) {
            return store;
        }
        roots.retain(|_, store| store.strong_count() > 0);
        let store = Arc::new(authorities.root_store());
        roots.insert(authorities.clone(), Arc::downgrade(&store));
        store
    }
}

/// Holds a backend's certificate to a policy.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    /// Empty: it has to be for the server name.
    names: Arc<[SubjectName]>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        if self.names.is_empty() {
            verify_server_name(&certificate, server_name)?;
        } else if !self.names.iter().any(|name| is_for(end_entity, &certificate, name)) {
            // "Hostname can be used for certificate selection but MUST NOT be used for authentication"
            // (`BackendTLSPolicyValidation`).
            return Err(CertificateError::NotValidForName.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether a certificate has an alternative name that matches `name`.
fn is_for(der: &CertificateDer<'_>, parsed: &ParsedCertificate<'_>, name: &SubjectName) -> bool {
    let Ok(certificate) = webpki::EndEntityCert::try_from(der) else { return false };
    match name {
        SubjectName::Uri(uri) => certificate.valid_uri_names().any(|own| *own == **uri),
        SubjectName::Hostname(name) => match name.strip_prefix("*.") {
            // A wildcard in the policy stands for one label, as in a certificate, or for itself.
            Some(parent) => certificate.valid_dns_names().any(|own| {
                let own = own.to_ascii_lowercase();
                own.split_once('.').is_some_and(|(_, rest)| rest == parent)
            }),
            None => ServerName::try_from(&**name).is_ok_and(|name| verify_server_name(parsed, &name).is_ok()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Arc;

    use rcgen::{CertificateParams, KeyPair};

    use super::{Application, Identities};
    use crate::certificate::{Authorities, Certificate};
    use crate::snapshot::BackendTls;

    fn tls(server_name: &str, authorities: &Arc<Authorities>) -> Arc<BackendTls> {
        let (server_name, authorities) = (server_name.into(), authorities.clone());
        Arc::new(BackendTls { server_name, names: [].into(), authorities })
    }

    #[test]
    fn identity_is_one_for_equal_terms_and_forgotten_after_the_snapshot_has_it_no_more() {
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&key).unwrap();
        let authorities = Arc::new(Authorities::parse(own.pem().as_bytes()).unwrap());
        let certificate = Certificate::parse(own.pem().as_bytes(), key.serialize_pem().as_bytes());
        let certificate = Arc::new(certificate.unwrap());
        let identities = Identities::default();
        let of = |tls: &Arc<BackendTls>, shown: Option<&Arc<Certificate>>| {
            identities.of(tls, shown, Application::Http).unwrap()
        };
        let one = tls("one.example", &authorities);
        let first = of(&one, None);
        assert!(Rc::ptr_eq(&first, &of(&tls("one.example", &authorities), None)));
        assert_ne!(first.number(), of(&one, Some(&certificate)).number());
        assert_ne!(first.number(), identities.of(&one, None, Application::Opaque).unwrap().number());
        assert_eq!((identities.known.borrow().len(), identities.roots.borrow().len()), (3, 1));
        drop(one);
        let two = tls("two.example", &authorities);
        of(&two, None);
        assert_eq!(identities.known.borrow().len(), 1);
        // A number is never given again: connections by it may still be kept.
        assert!(of(&tls("one.example", &authorities), None).number() > first.number());
        assert!(identities.of(&tls("not a name", &authorities), None, Application::Http).is_err());
    }
}
