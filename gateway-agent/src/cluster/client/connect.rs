//! Credentials to a client: where the API server is, who it is, and who asks.
//!
//! Tokens are read again from their file at least once a minute, and in a cluster the server's CA as well; a rotation
//! needs no restart.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt as _;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tower::{BoxError, ServiceBuilder};

/// Where the kubelet puts a pod's credentials.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A TCP handshake across continents takes a third of a second; two lost SYNs three.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// A peer that vanished without a word is found out after 10 + 3 x 5 seconds: a quiet watch sends nothing itself.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

/// The same for what was sent and not acknowledged.
const UNACKNOWLEDGED_DEADLINE: Duration = Duration::from_secs(25);

/// Watches are reopened every few minutes on connections that others have left.
const POOL_IDLE: Duration = Duration::from_secs(30);

/// Per connection, and there is one for each watch. Bodies are streamed, so that only a head must fit.
const MAX_READ_BUFFER: usize = 64 << 10;

/// How to find the API server and who to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// A kubeconfig and the context to take from it; `None`: its current one.
    Kubeconfig {
        file: PathBuf,
        context: Option<String>,
    },
    InCluster(InCluster),
}

/// What the kubelet tells a pod of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InCluster {
    pub host: String,
    pub port: u16,
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] io::Error),
    #[error("cannot read the kubeconfig {0}")]
    Kubeconfig(PathBuf, #[source] Box<KubeconfigError>),
    #[error("not the address of an API server: {0}")]
    Address(String, #[source] http::uri::InvalidUri),
    #[error("cannot use the credentials")]
    Client(#[source] kube::Error),
}

/// The client and the namespace that the credentials name.
pub(super) async fn client(credentials: &Credentials) -> Result<(kube::Client, String), ConnectError> {
    let mut config = match credentials {
        Credentials::Kubeconfig { file, context } => kubeconfig(file, context.clone()).await?,
        Credentials::InCluster(server) => in_cluster(server)?,
    };
    let agent = concat!("gateway-agent/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    let namespace = config.default_namespace.clone();
    let client = build(&config).map_err(ConnectError::Client)?;
    Ok((client, namespace))
}

fn build(config: &kube::Config) -> kube::Result<kube::Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_DEADLINE));
    tcp.set_keepalive(Some(KEEPALIVE_IDLE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_DEADLINE));
    let tls = config.rustls_https_connector_with_connector(tcp)?;
    let http = HttpClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .http1_max_buf_size(MAX_READ_BUFFER)
        .build(tls);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}

async fn kubeconfig(file: &Path, context: Option<String>) -> Result<kube::Config, ConnectError> {
    let failed = |error| ConnectError::Kubeconfig(file.to_owned(), Box::new(error));
    let read = Kubeconfig::read_from(file).map_err(failed)?;
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    kube::Config::from_custom_kubeconfig(read, &options).await.map_err(failed)
}

fn in_cluster(server: &InCluster) -> Result<kube::Config, ConnectError> {
    let InCluster { host, port } = server;
    let address = if host.contains(':') {
        format!("https://[{host}]:{port}")
    } else {
        format!("https://{host}:{port}")
    };
    let url = address.parse().map_err(|error| ConnectError::Address(address, error))?;
    let file = |name: &str| Path::new(SERVICE_ACCOUNT).join(name);
    let mut config = kube::Config::new(url);
    let namespace = file("namespace");
    let named = fs::read_to_string(&namespace).map_err(|error| ConnectError::Read(namespace, error))?;
    named.trim().clone_into(&mut config.default_namespace);
    let token = file("token");
    // The client reads it at the first request only; a pod without one is better told at the start.
    fs::read(&token).map_err(|error| ConnectError::Read(token.clone(), error))?;
    config.auth_info =
        AuthInfo { token_file: Some(token.to_string_lossy().into_owned()), ..AuthInfo::default() };
    let authority = file("ca.crt");
    let pem = fs::read(&authority).map_err(|error| ConnectError::Read(authority.clone(), error))?;
    let certificates = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
    config.root_cert = Some(certificates.map(|certificate| certificate.to_vec()).collect());
    // In force instead of the above, and read again once a minute.
    config.root_cert_file = Some(authority);
    Ok(config)
}
