//! A request in steady state makes no heap allocation on the worker's thread, and a bounded few by TLS. A test binary
//! of its own: it replaces the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gateway_agent::access_log::{AccessLog, Target};
use gateway_agent::certificate::Certificate;
use gateway_agent::drain::Drain;
use gateway_agent::metrics::Metrics;
use gateway_agent::proxy::http::{Client, HttpWorker, serve};
use gateway_agent::proxy::{Proxy, ProxyConfig, Timeouts};
use gateway_agent::snapshot::{
    Backend, BackendProtocol, BackendSecurity, EndpointSet, HostTable, HttpAction, HttpMatch, HttpRouteMatch,
    HttpRule, HttpTable, HttpVirtualListener, Listener, ListenerKey, ListenerName, ObjectName, PathMatch,
    Protocol, Publisher, Revision, RouteKind, RouteName, Scheme, Snapshot, Split, TlsMode, TlsTable,
    TlsTerms, TlsVirtualListener, Transport, VirtualHost, WeightedBackend,
};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// On threads of a whole proxy, which name themselves.
static PROXY_ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
    static IS_PROXY: Cell<Option<bool>> = const { Cell::new(None) };
}

fn count() {
    if IS_WORKER.get() {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
    }
    let is_proxy = IS_PROXY.get().unwrap_or_else(|| {
        let mut name = [0_u8; 16];
        // SAFETY: the kernel writes at most 16 bytes to the array, which lives through the call.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        let is_proxy = name.starts_with(b"proxy-");
        // A thread gets its name before it runs anything of ours; the test harness's threads have names of tests.
        IS_PROXY.set(Some(is_proxy));
        is_proxy
    });
    if is_proxy {
        PROXY_ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: passes every call on to the system's allocator unchanged; counting neither allocates (the thread-local is
// const-initialised and has no destructor) nor touches the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; `memory` came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: test\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";

const REQUESTS: [&[u8]; 3] = [
    b"GET /api/v1/items?page=2 HTTP/1.1\r\nHost: shop.example.com\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n",
    b"GET /%61pi/./v1/items HTTP/1.1\r\nHost: SHOP.example.com:80\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n",
    b"POST /api/v1/items HTTP/1.1\r\nHost: shop.example.com\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
];

fn key() -> ListenerKey {
    ListenerKey { transport: Transport::Tcp, address: None, port: NonZeroU16::MIN }
}

fn snapshot(endpoints: &[SocketAddr]) -> Snapshot {
    let object = |name: &str| ObjectName::new("default", name);
    let addresses = endpoints.into();
    let set = Arc::new(EndpointSet {
        service: object("service"),
        port: 80,
        protocol: BackendProtocol::Http1,
        addresses,
        security: BackendSecurity::Cleartext,
        proxy_version: None,
    });
    let split = Split::new(vec![WeightedBackend::new(1, Backend::Endpoints(set))]);
    let route = RouteName { kind: RouteKind::Http, object: object("route") };
    let rule = Arc::new(HttpRule::new(route, 0, HttpAction::Forward(split)));
    let path = PathMatch::Prefix("/api".into());
    let found = HttpMatch { conditions: Arc::new(HttpRouteMatch::by_path(path)), rule };
    let mut hosts = HostTable::default();
    hosts.insert(Some("*.example.com"), Arc::new(VirtualHost::new(vec![found])));
    let name = ListenerName::of_gateway(&object("gateway"), &"http".into());
    let mut listeners = HostTable::default();
    listeners.insert(
        None,
        Arc::new(HttpVirtualListener {
            name: name.clone(),
            port: 80,
            scheme: Scheme::Http,
            client_certificate: None,
            provenance: Arc::default(),
            hosts,
            grpc: HostTable::default(),
        }),
    );
    let protocol = Protocol::Http(Arc::new(HttpTable { listeners }));
    let listener = Arc::new(Listener { key: key(), names: [name].into(), protocol, proxy_sources: None });
    Snapshot { revision: Revision(1), listeners: [listener].into() }
}

/// Answers whatever comes in one piece.
fn serve_answers() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while matches!(stream.read(&mut buffer), Ok(length) if length > 0) {
                    stream.write_all(ANSWER).unwrap();
                }
            });
        }
    });
    address
}

fn run_worker(listener: TcpListener, endpoints: [SocketAddr; 2], log: &AccessLog) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let publisher = Publisher::default();
    publisher.publish(Arc::new(snapshot(&endpoints)));
    let worker = HttpWorker::new(publisher.reader(), Arc::new(Metrics::default()), Drain::default(), 1);
    let worker = Rc::new(worker.with_access_log(log));
    IS_WORKER.set(true);
    tokio::task::LocalSet::new().block_on(&runtime, async move {
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let local = listener.local_addr().unwrap();
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            tokio::task::spawn_local(serve(Client::cleartext(stream), peer, local, key(), worker.clone()));
        }
    });
}

fn ask(client: &mut (impl Read + Write), n: usize) {
    client.write_all(REQUESTS[n % REQUESTS.len()]).unwrap();
    let mut answer = [0; ANSWER.len()];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, ANSWER);
}

/// Allocations of a worker in 3000 requests, after some to begin with. One worker at a time: they are counted together.
fn allocations(log: &AccessLog) -> u64 {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let endpoints = [serve_answers(), serve_answers()];
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let log = log.clone();
    std::thread::spawn(move || run_worker(listener, endpoints, &log));
    let mut client = TcpStream::connect(address).unwrap();
    client.set_nodelay(true).unwrap();
    for n in 0..200 {
        ask(&mut client, n);
    }
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    assert!(before > 0, "the worker's thread is not counted");
    for n in 0..3000 {
        ask(&mut client, n);
    }
    ALLOCATIONS.load(Ordering::SeqCst) - before
}

#[test]
fn request_in_steady_state_allocates_nothing() {
    assert_eq!(allocations(&AccessLog::default()), 0);
}

#[test]
fn request_that_is_logged_allocates_nothing_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let (log, writer) = AccessLog::start(Target::File(path.clone()), Arc::default()).unwrap();
    assert_eq!(allocations(&log), 0);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut lines = String::new();
    // The last one is logged after its answer was sent.
    while lines.lines().count() < 3200 {
        assert!(std::time::Instant::now() < deadline, "{} lines", lines.lines().count());
        std::thread::yield_now();
        lines = std::fs::read_to_string(&path).unwrap();
    }
    writer.finish();
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["http.status"], &line["route.rule"]), (&200.into(), &"0".into()), "{line}");
    }
}

/// TLS itself allocates for each record that it reads or writes; a request is one record and so is its answer.
const TLS_ALLOCATIONS_PER_REQUEST_MAX: u64 = 12;

#[test]
fn request_by_tls_allocates_a_bounded_few() {
    let endpoints = [serve_answers(), serve_answers()];
    let key_pair = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["shop.example.com".to_owned()]).unwrap();
    let signed = params.self_signed(&key_pair).unwrap();
    let (chain, key_pem) = (signed.pem(), key_pair.serialize_pem());
    let certificate = Certificate::parse(chain.as_bytes(), key_pem.as_bytes()).unwrap();
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let key = ListenerKey {
        transport: Transport::Tcp,
        address: Some(Ipv4Addr::LOCALHOST.into()),
        port: NonZeroU16::new(port).unwrap(),
    };
    let snapshot = https_snapshot(key, &endpoints, certificate);
    std::thread::spawn(move || run_proxy(snapshot));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(signed.der().clone()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "shop.example.com".try_into().unwrap();
    let session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = connect_soon((Ipv4Addr::LOCALHOST, port).into());
    let mut client = rustls::StreamOwned::new(session, socket);
    for n in 0..200 {
        ask(&mut client, n);
    }
    let before = PROXY_ALLOCATIONS.load(Ordering::SeqCst);
    assert!(before > 0, "the worker's thread is not counted");
    for n in 0..3000 {
        ask(&mut client, n);
    }
    let per_request = (PROXY_ALLOCATIONS.load(Ordering::SeqCst) - before) as f64 / 3000.0;
    println!("{per_request} allocations per request");
    assert!(per_request <= TLS_ALLOCATIONS_PER_REQUEST_MAX as f64, "{per_request} allocations per request");
}

fn https_snapshot(key: ListenerKey, endpoints: &[SocketAddr], certificate: Certificate) -> Snapshot {
    let cleartext = snapshot(endpoints);
    let listener = cleartext.listeners.first().unwrap();
    let Protocol::Http(http) = &listener.protocol else { panic!("{listener:?}") };
    let name = listener.names.first().unwrap().clone();
    let terms = TlsTerms { certificates: [Arc::new(certificate)].into(), clients: None };
    let mode = TlsMode::Https { terms, http: http.clone() };
    let mut table = TlsTable::default();
    table.listeners.insert(None, Arc::new(TlsVirtualListener { name: name.clone(), mode }));
    let protocol = Protocol::Tls(Arc::new(table));
    let listener = Listener { key, names: [name].into(), protocol, proxy_sources: None };
    Snapshot { revision: Revision(1), listeners: [Arc::new(listener)].into() }
}

/// Serves until the process ends.
fn run_proxy(snapshot: Snapshot) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        let publisher = Publisher::default();
        publisher.publish(Arc::new(snapshot));
        let config = ProxyConfig {
            pool: Default::default(),
            workers: std::num::NonZeroUsize::MIN,
            drain: Drain::default(),
            metrics: Arc::new(Metrics::default()),
            steering: None,
            seed: 1,
            timeouts: Timeouts::default(),
            access_log: AccessLog::default(),
        };
        let proxy = Proxy::start(config, &publisher).unwrap();
        proxy.join().await.unwrap();
    });
}

/// Connects as soon as somebody listens.
fn connect_soon(address: SocketAddr) -> TcpStream {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
        std::thread::yield_now();
    }
}
