//! A running proxy, snapshots for it, and backends.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::{NonZeroU16, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::certificate::Certificate;
use crate::drain::Drain;
use crate::metrics::Metrics;
use crate::proxy::limits::Budget;
use crate::proxy::steering::Steering;
use crate::proxy::{Proxy, ProxyConfig, ProxyError, Timeouts};
use crate::snapshot::{
    Backend, BackendProtocol, BackendSecurity, EndpointSet, HostTable, HttpAction, HttpMatch, HttpRouteMatch,
    HttpRule, HttpTable, HttpVirtualListener, L4Service, Listener, ListenerKey, ListenerName, Maglev,
    ObjectName, Protocol, ProxySources, ProxyVersion, Publisher, Revision, RouteKind, RouteName, Scheme,
    Snapshot, Split, TlsMode, TlsRule, TlsTable, TlsTerms, TlsVirtualListener, Transport, VirtualHost,
    WeightedBackend,
};
use crate::status::{Applied, Served};

/// Longest wait for anything that is to happen at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(super) const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

pub(super) struct Harness {
    pub(super) proxy: Proxy,
    pub(super) publisher: Publisher,
    pub(super) drain: Drain,
    metrics: Arc<Metrics>,
    revision: u64,
}

impl Harness {
    pub(super) fn new() -> Self {
        Self::with(Timeouts::default(), None)
    }

    pub(super) fn with(timeouts: Timeouts, steering: Option<Arc<dyn Steering>>) -> Self {
        Self::start(2, |config, publisher| {
            Proxy::start(ProxyConfig { timeouts, steering, ..config }, publisher)
        })
    }

    /// One worker with these bounds.
    pub(super) fn within(budget: Budget) -> Self {
        Self::start(1, |config, publisher| Proxy::start_within(budget, config, publisher))
    }

    fn start(
        workers: usize,
        start: impl FnOnce(ProxyConfig, &Publisher) -> Result<Proxy, ProxyError>,
    ) -> Self {
        let publisher = Publisher::default();
        let drain = Drain::default();
        let metrics = Arc::new(Metrics::default());
        let config = ProxyConfig {
            pool: Arc::default(),
            workers: NonZeroUsize::new(workers).expect("not zero"),
            drain: drain.clone(),
            metrics: metrics.clone(),
            steering: None,
            seed: 1,
            timeouts: Timeouts::default(),
            access_log: Default::default(),
        };
        let proxy = start(config, &publisher).expect("proxy starts");
        Self { proxy, publisher, drain, metrics, revision: 0 }
    }

    /// Publishes and waits for the acknowledgement.
    pub(super) async fn serve(&mut self, listeners: Vec<Listener>) -> Arc<Applied> {
        self.revision += 1;
        let revision = Revision(self.revision);
        let mut listeners: Vec<_> = listeners.into_iter().map(Arc::new).collect();
        listeners.sort_by_key(|listener| listener.key);
        self.publisher.publish(Arc::new(Snapshot { revision, listeners: listeners.into() }));
        self.applied(|applied| applied.revision == revision).await
    }

    pub(super) async fn applied(&self, condition: impl Fn(&Applied) -> bool) -> Arc<Applied> {
        let mut applied = self.proxy.applied();
        soon(async { applied.wait_for(|applied| condition(applied)).await.expect("proxy runs").clone() })
            .await
    }

    /// What a scrape shows.
    pub(super) fn text(&self) -> String {
        crate::metrics::encode(&self.metrics, &crate::metrics::Extra::default())
    }

    /// Stops at once and waits for the threads.
    pub(super) async fn end(self) {
        self.drain.abort();
        soon(self.proxy.join()).await.expect("no worker panics");
    }
}

/// `future`, which must not take long.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("happens in time")
}

/// A port that nobody uses, below the range that the kernel takes ports of clients from.
pub(super) fn free_port() -> NonZeroU16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 20_000 + u16::try_from(std::process::id() % 100).expect("small") * 100;
    for _ in 0..1_000 {
        let port = start + NEXT.fetch_add(1, Ordering::Relaxed);
        let any = (Ipv6Addr::UNSPECIFIED, port);
        if std::net::TcpListener::bind(any).is_ok() && std::net::UdpSocket::bind(any).is_ok() {
            return NonZeroU16::new(port).expect("not zero");
        }
    }
    panic!("no free port from {start} on");
}

pub(super) fn key(transport: Transport, address: Option<IpAddr>) -> ListenerKey {
    ListenerKey { transport, address, port: free_port() }
}

pub(super) fn at(address: IpAddr, key: ListenerKey) -> SocketAddr {
    SocketAddr::new(address, key.port.get())
}

fn object(name: &str) -> ObjectName {
    ObjectName::new("default", name)
}

pub(super) fn listener(key: ListenerKey, protocol: Protocol) -> Listener {
    let name = ListenerName::of_gateway(&object("gw"), &format!("port-{}", key.port).into());
    Listener { key, names: [name].into(), protocol, proxy_sources: None }
}

fn maglev(targets: &[Option<SocketAddr>]) -> Arc<Maglev> {
    // Any slot order will do here; 13 is prime.
    let slots = (0..13).map(|slot| u16::try_from(slot % targets.len().max(1)).expect("small"));
    let slots = if targets.is_empty() { [].into() } else { slots.collect() };
    Arc::new(Maglev { slots, targets: targets.into() })
}

pub(super) fn service(kind: RouteKind, targets: &[Option<SocketAddr>]) -> Arc<L4Service> {
    let table = maglev(targets);
    let route = Some(RouteName { kind, object: object("route") });
    Arc::new(L4Service { route, v4: table.clone(), v6: table, ..L4Service::default() })
}

pub(super) fn tcp(key: ListenerKey, targets: &[SocketAddr]) -> Listener {
    let targets: Vec<_> = targets.iter().copied().map(Some).collect();
    listener(key, Protocol::Tcp(service(RouteKind::Tcp, &targets)))
}

pub(super) fn udp(key: ListenerKey, targets: &[SocketAddr]) -> Listener {
    let targets: Vec<_> = targets.iter().copied().map(Some).collect();
    listener(key, Protocol::Udp(service(RouteKind::Udp, &targets)))
}

fn endpoints(addresses: &[SocketAddr], security: BackendSecurity) -> Backend {
    let (service, addresses) = (object("backend"), addresses.into());
    Backend::Endpoints(Arc::new(EndpointSet {
        service,
        port: 80,
        protocol: BackendProtocol::Http1,
        addresses,
        security,
        proxy_version: None,
    }))
}

/// A TLS listener of mode Terminate beside one that passes on, both of one port.
pub(super) fn terminate(
    key: ListenerKey,
    (hostname, terms): (&str, TlsTerms),
    (backend, security): (SocketAddr, BackendSecurity),
    client_certificate: Option<Arc<Certificate>>,
    passed: Option<(&str, SocketAddr)>,
) -> Listener {
    let mut listener = https(key, &[], passed.as_slice());
    let Protocol::Tls(table) = &mut listener.protocol else { panic!("{listener:?}") };
    let mut hosts = HostTable::default();
    let route = RouteName { kind: RouteKind::Tls, object: object(hostname) };
    let split = Split::new(vec![WeightedBackend::new(1, endpoints(&[backend], security))]);
    hosts.insert(Some(hostname), Arc::new(TlsRule { route, split }));
    let name = tls_listener_name(key, Some(hostname));
    let mode = TlsMode::Terminate { terms, hosts, client_certificate };
    let own = Arc::new(TlsVirtualListener { name: name.clone(), mode });
    Arc::make_mut(table).listeners.insert(Some(hostname), own);
    listener.names = listener.names.iter().cloned().chain([name]).collect();
    listener
}

/// The same listener, whose connections begin with a header of the PROXY protocol of one of `sources`.
pub(super) fn expecting(listener: Listener, sources: &[&str]) -> Listener {
    let nets: Vec<_> = sources.iter().map(|net| net.parse().expect("a prefix")).collect();
    Listener { proxy_sources: Some(ProxySources::new(&nets)), ..listener }
}

/// The same listener of TCP, or with TLSRoutes, whose backends are told of clients.
pub(super) fn telling(mut listener: Listener, version: ProxyVersion) -> Listener {
    match &mut listener.protocol {
        Protocol::Tcp(service) => {
            let service = Arc::make_mut(service);
            let targets = service.v4.targets.iter().flatten();
            service.announced = targets.map(|target| (*target, version)).collect();
        }
        Protocol::Tls(table) => {
            let mut told = TlsTable::default();
            for (hostname, listener) in table.listeners.iter() {
                let mut listener = (**listener).clone();
                if let TlsMode::Passthrough(hosts) | TlsMode::Terminate { hosts, .. } = &mut listener.mode {
                    *hosts = told_hosts(hosts, version);
                }
                told.listeners.insert(hostname.as_deref(), Arc::new(listener));
            }
            *table = Arc::new(told);
        }
        other => panic!("{other:?}"),
    }
    listener
}

fn told_hosts(hosts: &HostTable<Arc<TlsRule>>, version: ProxyVersion) -> HostTable<Arc<TlsRule>> {
    let mut told = HostTable::default();
    for (hostname, rule) in hosts.iter() {
        let backends = rule.split.backends.iter().cloned().map(|mut share| {
            if let Backend::Endpoints(set) = &mut share.backend {
                Arc::make_mut(set).proxy_version = Some(version);
            }
            share
        });
        let split = Split::new(backends.collect());
        told.insert(hostname.as_deref(), Arc::new(TlsRule { split, ..(**rule).clone() }));
    }
    told
}

/// A TLS listener whose routes lead each host to its endpoints; `None` endpoints: the backend is invalid.
pub(super) fn tls(key: ListenerKey, hosts: &[(Option<&str>, Option<&[SocketAddr]>)]) -> Listener {
    let mut routes = HostTable::default();
    for (host, addresses) in hosts {
        let backend = match addresses {
            Some(addresses) => endpoints(addresses, BackendSecurity::Cleartext),
            None => Backend::Invalid,
        };
        let split = Split::new(vec![WeightedBackend::new(1, backend)]);
        let route = RouteName { kind: RouteKind::Tls, object: object(host.unwrap_or("any")) };
        routes.insert(*host, Arc::new(TlsRule { route, split }));
    }
    let listener_name = ListenerName::of_gateway(&object("gw"), &format!("port-{}", key.port).into());
    let mut table = TlsTable::default();
    table.listeners.insert(
        None,
        Arc::new(TlsVirtualListener { name: listener_name, mode: TlsMode::Passthrough(routes) }),
    );
    listener(key, Protocol::Tls(Arc::new(table)))
}

pub(super) fn served(applied: &Applied) -> BTreeMap<ListenerKey, Served> {
    applied.listeners.clone()
}

/// A TCP server that sends `greeting`, then back whatever comes, then FIN.
pub(super) async fn echo(address: IpAddr, greeting: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((address, 0)).await.expect("bind");
    let local = listener.local_addr().expect("address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.write_all(greeting).await?;
                let (mut read, mut write) = stream.split();
                tokio::io::copy(&mut read, &mut write).await?;
                write.shutdown().await
            });
        }
    });
    local
}

/// A port of `address` that refuses connections and datagrams.
pub(super) fn refusing(address: IpAddr) -> SocketAddr {
    SocketAddr::new(address, free_port().get())
}

pub(super) async fn connect(address: SocketAddr) -> TcpStream {
    soon(TcpStream::connect(address)).await.expect("connects")
}

/// What an echo server behind the proxy answers to `message`, greeting included. A reset may come at any step.
pub(super) async fn try_exchange(address: SocketAddr, message: &[u8]) -> std::io::Result<Vec<u8>> {
    soon(async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(message).await?;
        stream.shutdown().await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(answer)
    })
    .await
}

pub(super) async fn exchange(address: SocketAddr, message: &[u8]) -> Vec<u8> {
    try_exchange(address, message).await.expect("answer")
}

/// How a connection ended that was to be refused.
pub(super) async fn ending(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.map(|_| answer)
}

pub(super) fn is_reset(result: &std::io::Result<Vec<u8>>) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
    // A write, or the end of writing, after the reset was noticed has errors of its own.
    matches!(result, Err(error) if matches!(error.kind(), ConnectionReset | BrokenPipe | NotConnected))
}

/// An HTTP listener that forwards every request to `addresses`.
pub(super) fn http(key: ListenerKey, addresses: &[SocketAddr]) -> Listener {
    secured(key, addresses, BackendSecurity::Cleartext, None)
}

/// The same, where the backends are spoken to so, and shown this certificate.
pub(super) fn secured(
    key: ListenerKey,
    addresses: &[SocketAddr],
    security: BackendSecurity,
    client_certificate: Option<Arc<Certificate>>,
) -> Listener {
    let name = ListenerName::of_gateway(&object("gw"), &format!("port-{}", key.port).into());
    let secured = (security, client_certificate);
    let http = http_listener(name, Scheme::Http, key, addresses, secured);
    let mut table = HttpTable::default();
    table.listeners.insert(None, Arc::new(http));
    listener(key, Protocol::Http(Arc::new(table)))
}

/// A listener that terminates TLS and forwards every request to `backend`.
pub(super) struct HttpsListener<'a> {
    pub(super) hostname: Option<&'a str>,
    pub(super) terms: TlsTerms,
    pub(super) backend: SocketAddr,
}

/// The name of the listener for `hostname` in [`https`].
pub(super) fn tls_listener_name(key: ListenerKey, hostname: Option<&str>) -> ListenerName {
    let section = format!("port-{}-{}", key.port, hostname.unwrap_or("any"));
    ListenerName::of_gateway(&object("gw"), &section.into())
}

/// HTTPS listeners of one port, and beside them names that pass through to a backend.
pub(super) fn https(
    key: ListenerKey,
    listeners: &[HttpsListener<'_>],
    passed: &[(&str, SocketAddr)],
) -> Listener {
    let mut tls = TlsTable::default();
    let mut names = Vec::new();
    for one in listeners {
        let name = tls_listener_name(key, one.hostname);
        names.push(name.clone());
        let mut table = HttpTable::default();
        let http = http_listener(name.clone(), Scheme::Https, key, &[one.backend], Default::default());
        table.listeners.insert(one.hostname, Arc::new(http));
        let mode = TlsMode::Https { terms: one.terms.clone(), http: Arc::new(table) };
        tls.listeners.insert(one.hostname, Arc::new(TlsVirtualListener { name, mode }));
    }
    for (hostname, backend) in passed {
        let name = tls_listener_name(key, Some(hostname));
        names.push(name.clone());
        let backend = endpoints(&[*backend], BackendSecurity::Cleartext);
        let split = Split::new(vec![WeightedBackend::new(1, backend)]);
        let route = RouteName { kind: RouteKind::Tls, object: object(hostname) };
        let mut hosts = HostTable::default();
        hosts.insert(None, Arc::new(TlsRule { route, split }));
        let mode = TlsMode::Passthrough(hosts);
        tls.listeners.insert(Some(hostname), Arc::new(TlsVirtualListener { name, mode }));
    }
    Listener { key, names: names.into(), protocol: Protocol::Tls(Arc::new(tls)), proxy_sources: None }
}

/// Forwards every request to `addresses`.
fn http_listener(
    name: ListenerName,
    scheme: Scheme,
    key: ListenerKey,
    addresses: &[SocketAddr],
    (security, client_certificate): (BackendSecurity, Option<Arc<Certificate>>),
) -> HttpVirtualListener {
    let backend = endpoints(addresses, security);
    let route = RouteName { kind: RouteKind::Http, object: object("web") };
    let action = HttpAction::Forward(Split::new(vec![WeightedBackend::new(1, backend)]));
    let rule = HttpRule::new(route, 0, action);
    let every = HttpMatch { conditions: Arc::new(HttpRouteMatch::every()), rule: Arc::new(rule) };
    let mut hosts = HostTable::default();
    hosts.insert(None, Arc::new(VirtualHost::new(vec![every])));
    let grpc = HostTable::default();
    HttpVirtualListener {
        name,
        port: key.port.get(),
        scheme,
        client_certificate,
        provenance: Arc::default(),
        hosts,
        grpc,
    }
}
