//! The proxy between real sockets: scripted servers behind, plain byte streams in front.

mod access_log;
mod bodies;
mod cors;
mod failures;
mod filters;
mod http2;
mod http2_filters;
mod http2_hostile;
mod http2_servers;
mod lifecycle;
mod mirrors;
mod mirrors_http2;
mod provenance;
mod requests;
mod retries;
mod timeouts;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::{Client, HttpWorker, serve};
use crate::access_log::AccessLog;
use crate::drain::Drain;
use crate::metrics::Metrics;
use crate::snapshot::{
    Backend, BackendProtocol, BackendSecurity, EndpointSet, Filters, HostTable, HttpAction, HttpMatch,
    HttpRouteMatch, HttpRule, HttpTable, HttpVirtualListener, Listener, ListenerKey, ListenerName,
    ObjectName, PathMatch, Protocol, Publisher, Revision, RouteKind, RouteName, Scheme, Snapshot, Split,
    Transport, VirtualHost, WeightedBackend,
};

/// Far beyond what any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A proxy with one listener, whose routes a test publishes.
struct Lab {
    publisher: Publisher,
    worker: Rc<HttpWorker>,
    metrics: Arc<Metrics>,
    drain: Drain,
    address: SocketAddr,
    n_published: Cell<u64>,
}

fn key() -> ListenerKey {
    ListenerKey { transport: Transport::Tcp, address: None, port: NonZeroU16::MIN }
}

fn object(name: &str) -> ObjectName {
    ObjectName::new("default", name)
}

fn route_name() -> RouteName {
    RouteName { kind: RouteKind::Http, object: object("route") }
}

fn listener_name() -> ListenerName {
    ListenerName::of_gateway(&object("gateway"), &"http".into())
}

fn virtual_listener(hosts: HostTable<Arc<VirtualHost>>) -> HttpVirtualListener {
    HttpVirtualListener {
        name: listener_name(),
        port: 80,
        scheme: Scheme::Http,
        client_certificate: None,
        provenance: Arc::default(),
        hosts,
        grpc: HostTable::default(),
    }
}

fn endpoints(weight: u32, addresses: &[SocketAddr]) -> WeightedBackend {
    let set = EndpointSet {
        service: object("service"),
        port: 80,
        protocol: BackendProtocol::Http1,
        addresses: addresses.into(),
        security: BackendSecurity::Cleartext,
        proxy_version: None,
    };
    WeightedBackend::new(weight, Backend::Endpoints(Arc::new(set)))
}

fn forward(addresses: &[SocketAddr]) -> HttpAction {
    HttpAction::Forward(Split::new(vec![endpoints(1, addresses)]))
}

fn prefix(path: &str, action: HttpAction) -> HttpMatch {
    HttpMatch {
        conditions: Arc::new(HttpRouteMatch::by_path(PathMatch::Prefix(path.into()))),
        rule: Arc::new(HttpRule::new(route_name(), 0, action)),
    }
}

fn filters(rule: &mut Arc<HttpRule>) -> &mut Filters {
    Arc::make_mut(&mut Arc::make_mut(rule).filters)
}

impl Lab {
    async fn new() -> Self {
        Self::logging(&AccessLog::default()).await
    }

    async fn logging(log: &AccessLog) -> Self {
        let publisher = Publisher::default();
        let (metrics, drain) = (Arc::new(Metrics::default()), Drain::default());
        let worker = HttpWorker::new(publisher.reader(), metrics.clone(), drain.clone(), 1);
        let worker = Rc::new(worker.with_access_log(log));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = worker.clone();
        tokio::task::spawn_local(async move {
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                // As it is inherited from the proxy's own listeners.
                stream.set_nodelay(true).unwrap();
                tokio::task::spawn_local(serve(
                    Client::cleartext(stream),
                    peer,
                    address,
                    key(),
                    accepting.clone(),
                ));
            }
        });
        Self { publisher, worker, metrics, drain, address, n_published: Cell::new(0) }
    }

    fn publish(&self, host: Option<&str>, matches: Vec<HttpMatch>) {
        let mut hosts = HostTable::default();
        hosts.insert(host, Arc::new(VirtualHost::new(matches)));
        self.publish_listener(virtual_listener(hosts));
    }

    fn publish_listener(&self, listener: HttpVirtualListener) {
        let mut listeners = HostTable::default();
        listeners.insert(None, Arc::new(listener));
        let table = HttpTable { listeners };
        let names = [listener_name()].into();
        let protocol = Protocol::Http(Arc::new(table));
        let listener = Listener { key: key(), names, protocol, proxy_sources: None };
        self.n_published.set(self.n_published.get() + 1);
        let revision = Revision(self.n_published.get());
        self.publisher.publish(Arc::new(Snapshot { revision, listeners: [Arc::new(listener)].into() }));
    }

    fn route_to(&self, addresses: &[SocketAddr]) {
        self.publish(None, vec![prefix("", forward(addresses))]);
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// All that is answered to `request` on a connection of its own.
    async fn ask(&self, request: &str) -> String {
        let mut client = self.connect().await;
        client.write_all(request.as_bytes()).await.unwrap();
        read_to_end(&mut client).await
    }
}

/// Runs `test` as a worker thread would run the proxy.
fn run(test: impl AsyncFnOnce(&Lab)) {
    run_with(false, test);
}

/// The same with a clock that jumps to the next deadline when nothing else is to be done.
fn run_paused(test: impl AsyncFnOnce(&Lab)) {
    run_with(true, test);
}

fn run_with(is_paused: bool, test: impl AsyncFnOnce(&Lab)) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(is_paused).build().unwrap();
    let patience = if is_paused { Duration::from_secs(86_400) } else { PATIENCE };
    let whole = async { test(&Lab::new().await).await };
    let bounded = async { tokio::time::timeout(patience, whole).await };
    LocalSet::new().block_on(&runtime, bounded).expect("test took too long");
}

/// A server whose connections each run `script` with their number.
async fn server<F: Future<Output = ()> + 'static>(
    script: impl Fn(TcpStream, usize) -> F + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        let mut n = 0;
        while let Ok((stream, _)) = listener.accept().await {
            tokio::task::spawn_local(script(stream, n));
            n += 1;
        }
    });
    address
}

/// A server that answers each request with `answer` and keeps what it got.
async fn canned(answer: &'static str) -> (SocketAddr, Rc<RefCell<Vec<String>>>, Rc<Cell<usize>>) {
    let (requests, n_connections) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
    let (seen, connections) = (requests.clone(), n_connections.clone());
    let address = server(move |mut stream, _| {
        connections.set(connections.get() + 1);
        let seen = seen.clone();
        async move {
            while let Some(request) = read_request(&mut stream).await {
                seen.borrow_mut().push(request);
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    })
    .await;
    (address, requests, n_connections)
}

/// An address that refuses connections.
async fn refusing() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// A head and the body that its Content-Length announces; `None` at the end.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut request = read_head(stream).await?;
    let length = request
        .to_ascii_lowercase()
        .split("content-length: ")
        .nth(1)
        .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    request.push_str(std::str::from_utf8(&body).unwrap());
    Some(request)
}

/// Without the request's id, which is another one each time.
fn without_id(request: &str) -> String {
    let is_id = |line: &&str| line.to_ascii_lowercase().starts_with("x-request-id: ");
    request.split_inclusive("\r\n").filter(|line| !is_id(line)).collect()
}

async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// Exactly the next bytes.
async fn expect(stream: &mut TcpStream, expected: &str) {
    let mut got = vec![0; expected.len()];
    let result = stream.read_exact(&mut got).await;
    assert!(result.is_ok(), "closed instead of {expected:?}: {}", got.escape_ascii());
    assert_eq!(String::from_utf8_lossy(&got), expected);
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    String::from_utf8(all).unwrap()
}

/// Polls until `condition` holds; the test's own limit is the deadline.
async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
