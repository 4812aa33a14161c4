//! Authorities, what they sign, and TLS on both sides of the proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::harness::V4;
use crate::certificate::{Authorities, Certificate};
use crate::snapshot::{BackendSecurity, BackendTls, ClientTrust, SubjectName};

pub(super) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub(super) authorities: Arc<Authorities>,
}

/// A certificate with its key, signed by a [`Ca`].
pub(super) struct Issued {
    pub(super) certificate: Arc<Certificate>,
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

impl Ca {
    pub(super) fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let own = params.self_signed(&key).expect("certificate");
        let authorities = Arc::new(Authorities::parse(own.pem().as_bytes()).expect("parses"));
        Self { issuer: Issuer::new(params, key), authorities }
    }

    /// For these names, of which those with `://` are URIs.
    pub(super) fn issue(&self, names: &[&str]) -> Issued {
        self.sign(params(names))
    }

    pub(super) fn issue_expired(&self, names: &[&str]) -> Issued {
        let mut params = params(names);
        (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Issued {
        let key = KeyPair::generate().expect("key");
        let signed = params.signed_by(&key, &self.issuer).expect("signed");
        let parsed = Certificate::parse(signed.pem().as_bytes(), key.serialize_pem().as_bytes());
        let certificate = Arc::new(parsed.expect("parses"));
        Issued { certificate, chain: vec![signed.der().clone()], key: key.serialize_der() }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        Arc::new(self.authorities.root_store())
    }

    pub(super) fn trust(&self, allows_insecure_fallback: bool) -> Arc<ClientTrust> {
        Arc::new(ClientTrust { authorities: self.authorities.clone(), allows_insecure_fallback })
    }

    /// Backends are to be `server_name`, or one of `names`, by a certificate of this authority.
    pub(super) fn security(&self, server_name: &str, names: &[SubjectName]) -> BackendSecurity {
        let (authorities, server_name) = (self.authorities.clone(), server_name.into());
        BackendSecurity::Tls(Arc::new(BackendTls { server_name, names: names.into(), authorities }))
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    let kind = |name: &&str| {
        let text = (*name).try_into().expect("ASCII");
        if name.contains("://") { SanType::URI(text) } else { SanType::DnsName(text) }
    };
    params.subject_alt_names = names.iter().map(kind).collect();
    params
}

impl Issued {
    fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }

    /// A server with this certificate; asks for one of `clients`.
    pub(super) fn server(&self, clients: Option<&Ca>) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(ca.roots(), provider);
                builder.with_client_cert_verifier(verifier.build().expect("verifier"))
            }
        };
        builder.with_single_cert(self.chain.clone(), self.key()).expect("certificate")
    }
}

/// A client that trusts `server` and shows `own`.
pub(super) fn client(server: &Ca, own: Option<&Issued>) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("versions").with_root_certificates(server.roots());
    Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_auth_cert(own.chain.clone(), own.key()).expect("certificate"),
    })
}

/// A web server by TLS whose answers tell about the connection: its number, the name that was asked for, the number of
/// the client's certificate in `known`, and how the handshake went. `/last` closes after the answer; an upgrade is echoed.
pub(super) async fn web(config: ServerConfig, known: &[&Issued]) -> SocketAddr {
    let listener = TcpListener::bind((V4, 0)).await.expect("bind");
    let address = listener.local_addr().expect("address");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let known: Arc<[CertificateDer<'static>]> =
        known.iter().filter_map(|issued| issued.chain.first().cloned()).collect();
    let n_connections = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (acceptor, known) = (acceptor.clone(), known.clone());
            let n_connections = n_connections.clone();
            tokio::spawn(async move {
                let mut stream = acceptor.accept(socket).await?;
                let session = stream.get_ref().1;
                let shown = session.peer_certificates().and_then(<[_]>::first);
                let client = shown.and_then(|shown| known.iter().position(|known| known == shown));
                let facts = format!(
                    "connection={} name={} client={client:?} handshake={:?}",
                    n_connections.fetch_add(1, Ordering::Relaxed),
                    session.server_name().unwrap_or("none"),
                    session.handshake_kind().expect("done"),
                );
                loop {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        request.push(stream.read_u8().await?);
                    }
                    let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
                    if head.contains("upgrade: websocket") {
                        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
                        stream.write_all(answer.as_bytes()).await?;
                        stream.flush().await?;
                        let (mut read, mut write) = tokio::io::split(stream);
                        tokio::io::copy(&mut read, &mut write).await?;
                        return write.shutdown().await;
                    }
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{facts}", facts.len());
                    stream.write_all(answer.as_bytes()).await?;
                    stream.flush().await?;
                    if head.starts_with("get /last") {
                        return stream.shutdown().await;
                    }
                }
            });
        }
    });
    address
}
