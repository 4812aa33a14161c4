//! The real programs in real network namespaces. Need root, and an agent that was built with its kernel programs.

mod world;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::num::NonZeroU16;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use tokio::sync::watch;

use self::world::{BACKEND, DEADLINE, VIP, World, ip, output};
use super::attach::{Attachments, Mechanism};
use super::keeper::{Keeper, Pins};
use super::load::LoadError;
use super::{Ebpf, Setup, StartError, load, probe, start};
use crate::addresses;
use crate::args::DatapathMode;
use crate::drain::Drain;
use crate::snapshot::{
    L4Service, Listener, ListenerKey, Maglev, Protocol, Publisher, Revision, Snapshot, Transport,
};
use crate::status::{Applied, Served};

fn setup(bpffs: Option<&Path>) -> Setup {
    assert!(
        !probe::OBJECT.is_empty(),
        "built without kernel programs: run `cargo xtask setup`, then build again"
    );
    Setup {
        mode: DatapathMode::Ebpf,
        bpffs: bpffs.map(Into::into),
        instance: "test".into(),
        source_ports: 10_000..=29_999,
        max_flows: 1_024,
        holder: None,
    }
}

fn key(transport: Transport, port: u16) -> ListenerKey {
    ListenerKey { transport, address: None, port: NonZeroU16::new(port).unwrap() }
}

fn maglev(target: Option<SocketAddr>) -> Arc<Maglev> {
    Arc::new(Maglev { slots: (0..251).map(|_| 0).collect(), targets: [target].into() })
}

fn snapshot(revision: u64, services: &[(ListenerKey, SocketAddr)]) -> Arc<Snapshot> {
    let mut listeners: Vec<Arc<Listener>> = services
        .iter()
        .map(|(key, target)| {
            let (v4, v6) = if target.is_ipv4() { (Some(*target), None) } else { (None, Some(*target)) };
            let service = Arc::new(L4Service { v4: maglev(v4), v6: maglev(v6), ..L4Service::default() });
            let protocol = match key.transport {
                Transport::Tcp => Protocol::Tcp(service),
                Transport::Udp => Protocol::Udp(service),
            };
            Arc::new(Listener { key: *key, names: Arc::default(), protocol, proxy_sources: None })
        })
        .collect();
    listeners.sort_by_key(|listener| listener.key);
    Arc::new(Snapshot { revision: Revision(revision), listeners: listeners.into() })
}

/// A kernel path that runs in a thread of its own in the agent's namespace, with a proxy that opens everything.
struct Running {
    publisher: Publisher,
    proxy: watch::Sender<Arc<Applied>>,
    applied: watch::Receiver<Arc<Applied>>,
    monitor: Arc<super::Monitor>,
    drain: Drain,
    crash: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(world: &World, setup: Setup) -> Self {
        let (sender, receiver) = mpsc::channel();
        world.agent.background(move || {
            let ebpf = start(setup).unwrap();
            Self::serve(ebpf, &sender);
        });
        receiver.recv_timeout(DEADLINE).expect("the path starts")
    }

    fn serve(ebpf: Ebpf, started: &mpsc::Sender<Self>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (ended, end) = mpsc::channel::<()>();
        runtime.block_on(async {
            let publisher = Publisher::default();
            let reader = publisher.reader();
            let proxy = watch::Sender::new(Arc::new(Applied::default()));
            let drain = Drain::default();
            let (watching, interfaces) = addresses::watch().unwrap();
            let (crash, crashed) = tokio::sync::oneshot::channel();
            let running = Self {
                publisher,
                applied: ebpf.applied(),
                monitor: ebpf.monitor(),
                drain: drain.clone(),
                crash: Some(crash),
                // Joins by the closing of a channel, for the thread is not ours to join.
                thread: Some(std::thread::spawn(move || assert!(end.recv().is_err()))),
                proxy: proxy.clone(),
            };
            let watching = tokio::spawn(watching.run());
            let serving = ebpf.run(reader, interfaces, proxy.subscribe(), drain);
            started.send(running).ok().unwrap();
            tokio::select! {
                () = serving => {}
                _ = crashed => {}
            }
            watching.abort();
        });
        // Work on other threads may still hold what the path holds.
        drop(runtime);
        drop(ended);
    }

    /// Waits until the revision is in force.
    fn serve_all(&self, revision: u64, services: &[(ListenerKey, SocketAddr)]) -> Arc<Applied> {
        let snapshot = snapshot(revision, services);
        let opened = snapshot.listeners.iter().map(|listener| (listener.key, Served::By("bind"))).collect();
        self.publisher.publish(snapshot);
        self.proxy.send_replace(Arc::new(Applied { revision: Revision(revision), listeners: opened }));
        eventually(|| self.applied.borrow().revision == Revision(revision));
        self.applied.borrow().clone()
    }

    /// As `kill -9`: nothing is said to the kernel.
    fn crash(mut self) {
        drop(self.crash.take());
        self.thread.take().unwrap().join().unwrap();
    }

    fn stop(mut self) {
        self.drain.stop();
        self.thread.take().unwrap().join().unwrap();
    }

    fn counter(&self, name: &str) -> u64 {
        self.monitor.counters().into_iter().find(|(each, _)| *each == name).unwrap().1
    }
}

fn eventually(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}");
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
}

/// Answers every byte with the same, and each first byte with the peer's port before.
fn serve_echo(world: &World, address: SocketAddr) {
    let (sender, receiver) = mpsc::channel();
    world.backend.background(move || {
        let listener = TcpListener::bind(address).unwrap();
        sender.send(()).unwrap();
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || echo(stream));
        }
    });
    receiver.recv_timeout(DEADLINE).unwrap();
}

fn echo(mut stream: TcpStream) {
    let peer = stream.peer_addr().unwrap().port();
    if stream.write_all(&peer.to_be_bytes()).is_err() {
        return;
    }
    let mut buffer = [0; 1024];
    while let Ok(length) = stream.read(&mut buffer) {
        if length == 0 || stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// A connection from the client's namespace, and the port that the backend has seen.
fn connect(world: &World, address: SocketAddr) -> (TcpStream, u16) {
    let mut stream = world.client.run(|| TcpStream::connect_timeout(&address, DEADLINE).unwrap());
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut port = [0; 2];
    stream.read_exact(&mut port).unwrap();
    (stream, u16::from_be_bytes(port))
}

fn ping(stream: &mut TcpStream) {
    stream.write_all(b"ping").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ping");
}

#[test]
fn connection_over_either_family_goes_through_the_kernel() {
    let world = World::new();
    let v6: IpAddr = "2001:db8:b::2".parse().unwrap();
    serve_echo(&world, (BACKEND, 8080).into());
    serve_echo(&world, (v6, 8080).into());
    let running = Running::start(&world, setup(None));
    let services =
        [(key(Transport::Tcp, 80), (BACKEND, 8080).into()), (key(Transport::Tcp, 81), (v6, 8080).into())];
    let applied = running.serve_all(1, &services);
    let by = applied.listeners.values().collect::<Vec<_>>();
    assert!(matches!(by[..], [Served::By(_), Served::By(_)]), "{by:?}");

    for address in [SocketAddr::from((VIP, 80)), "[2001:db8::1]:81".parse().unwrap()] {
        let (mut stream, port) = connect(&world, address);
        assert!((10_000..=29_999).contains(&port), "{port}");
        ping(&mut stream);
    }
    assert!(running.counter("translated") > 0);
    assert_eq!(running.counter("promoted"), 2);
    let carried: u64 = running.monitor.listeners().iter().map(|(_, counters)| counters.flows).sum();
    assert_eq!(carried, 2);

    running.stop();
    let refused = world.client.run(|| TcpStream::connect_timeout(&(VIP, 80).into(), DEADLINE));
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn listener_follows_changes_of_endpoints_and_interfaces() {
    let world = World::new();
    serve_echo(&world, (BACKEND, 8080).into());
    let running = Running::start(&world, setup(None));
    let tcp = key(Transport::Tcp, 80);
    running.serve_all(1, &[(tcp, (BACKEND, 9).into())]);
    let refused = world.client.run(|| TcpStream::connect_timeout(&(VIP, 80).into(), DEADLINE));
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused, "the backend's own RST");
    running.serve_all(2, &[(tcp, (BACKEND, 8080).into())]);
    let (mut stream, _) = connect(&world, (VIP, 80).into());

    // A further address of the agent's namespace is served as soon as it is there.
    world.agent.run(|| ip("address add 192.0.2.9/24 dev front"));
    eventually(|| {
        let address = "192.0.2.9:80".parse().unwrap();
        world.client.run(|| TcpStream::connect_timeout(&address, DEADLINE)).is_ok()
    });

    // Not reachable any more: left to the relay, and taken back when it is.
    world.agent.run(|| ip("link set back down"));
    eventually(|| matches!(running.applied.borrow().listeners.get(&tcp), Some(Served::Left(_))));
    world.agent.run(|| ip("link set back up"));
    eventually(|| matches!(running.applied.borrow().listeners.get(&tcp), Some(Served::By(_))));
    ping(&mut stream);
    running.crash();
}

// O15: the client sends on and on from one port.
#[test]
fn datagrams_leave_an_endpoint_that_is_gone() {
    let world = World::new();
    for port in [5301u16, 5302] {
        let (sender, receiver) = mpsc::channel();
        world.backend.background(move || {
            let socket = UdpSocket::bind((BACKEND, port)).unwrap();
            sender.send(()).unwrap();
            let mut buffer = [0; 64];
            while let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                socket.send_to(&port.to_be_bytes(), peer).unwrap();
            }
        });
        receiver.recv_timeout(DEADLINE).unwrap();
    }
    let running = Running::start(&world, setup(None));
    let udp = key(Transport::Udp, 53);
    running.serve_all(1, &[(udp, (BACKEND, 5301).into())]);
    let client = world.client.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    client.connect((VIP, 53)).unwrap();
    client.set_read_timeout(Some(DEADLINE)).unwrap();
    let ask = || {
        client.send(b"?").unwrap();
        let mut answer = [0; 2];
        client.recv(&mut answer).unwrap();
        u16::from_be_bytes(answer)
    };
    assert_eq!([ask(), ask(), ask()], [5301; 3]);
    running.serve_all(2, &[(udp, (BACKEND, 5302).into())]);
    eventually(|| ask() == 5302);
    assert!(running.counter("flows_endpoint_gone") >= 1);
    running.crash();
}

#[test]
fn connections_are_steered_to_sockets_that_are_bound_elsewhere() {
    let world = World::new();
    world.agent.run(|| {
        let ebpf = start(setup(None)).unwrap();
        let steering = ebpf.steering().unwrap();
        let v4 = TcpListener::bind("127.0.0.1:0").unwrap();
        let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        let https = key(Transport::Tcp, 443);
        steering.open(https, v4.as_fd(), v6.as_fd()).unwrap();
        let reach = |address: &str, listener: &TcpListener| {
            let address: SocketAddr = address.parse().unwrap();
            let client = if address.ip().is_loopback() {
                TcpStream::connect_timeout(&address, DEADLINE).unwrap()
            } else {
                world.client.run(|| TcpStream::connect_timeout(&address, DEADLINE).unwrap())
            };
            let (accepted, peer) = listener.accept().unwrap();
            assert_eq!(accepted.local_addr().unwrap(), address);
            assert_eq!(peer, client.local_addr().unwrap());
        };
        reach("192.0.2.1:443", &v4);
        reach("127.0.0.1:443", &v4);
        reach("[2001:db8::1]:443", &v6);
        reach("[::1]:443", &v6);
        // No other port is touched.
        let other = TcpStream::connect_timeout(&"127.0.0.1:444".parse().unwrap(), DEADLINE);
        assert_eq!(other.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);

        steering.close(https);
        let closed = TcpStream::connect_timeout(&"127.0.0.1:443".parse().unwrap(), DEADLINE);
        assert_eq!(closed.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

/// A bpffs that only this thread sees.
fn bpffs() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace: run the tests as root");
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some("bpf"), dir.path(), Some("bpf"), MsFlags::empty(), none).unwrap();
    dir
}

// O40: a crash and the start of the next agent, and the connection does not notice.
#[test]
fn pinned_state_outlives_the_agent_and_is_adopted() {
    let world = World::new();
    serve_echo(&world, (BACKEND, 8080).into());
    let pins = bpffs();
    let tcp = key(Transport::Tcp, 80);
    let service = [(tcp, SocketAddr::from((BACKEND, 8080)))];
    let running = Running::start(&world, setup(Some(pins.path())));
    running.serve_all(1, &service);
    let (mut stream, _) = connect(&world, (VIP, 80).into());

    running.crash();
    ping(&mut stream);
    let (mut newer, _) = connect(&world, (VIP, 80).into());
    for round in 2..5 {
        let running = Running::start(&world, setup(Some(pins.path())));
        // In force before there is any snapshot.
        let (mut early, _) = connect(&world, (VIP, 80).into());
        running.serve_all(round, &service);
        for stream in [&mut stream, &mut newer, &mut early] {
            ping(stream);
        }
        assert!(running.counter("promoted") >= 2, "counters go on");
        if round % 2 == 0 { running.crash() } else { running.stop() }
    }
    ping(&mut stream);
}

#[test]
fn pins_of_another_namespace_are_removed() {
    let pins = bpffs();
    let first = World::new();
    Running::start(&first, setup(Some(pins.path()))).crash();
    let second = World::new();
    serve_echo(&second, (BACKEND, 8080).into());
    let running = Running::start(&second, setup(Some(pins.path())));
    running.serve_all(1, &[(key(Transport::Tcp, 80), (BACKEND, 8080).into())]);
    connect(&second, (VIP, 80).into());
    running.crash();
}

#[test]
fn pins_in_use_or_of_another_abi_are_refused() {
    let pins = bpffs();
    let world = World::new();
    let running = Running::start(&world, setup(Some(pins.path())));
    let in_use = world.agent.run(|| start(setup(Some(pins.path()))).unwrap_err());
    assert!(in_use.to_string().contains("another agent uses these pins"), "{in_use}");
    running.crash();
    world.agent.run(|| {
        let keeper = Keeper::Pins(Arc::new(Pins::open(pins.path(), "test").unwrap()));
        let objects = load::objects(&keeper, 1_024).unwrap();
        let mut meta: aya::maps::Array<_, gateway_common::abi::Meta> =
            objects.typed(gateway_common::maps::META).unwrap();
        let mut other = meta.get(&0, 0).unwrap();
        other.abi_version += 1;
        meta.set(0, &other, 0).unwrap();
    });
    let refused = world.agent.run(|| start(setup(Some(pins.path()))).unwrap_err());
    assert!(matches!(refused, StartError::Load(LoadError::OtherAbi { .. })), "{refused}");
}

// O12: the path is had all the same, and `ebpf` alone insists on the pins.
#[test]
fn bpffs_that_is_read_only_costs_the_pins_alone() {
    let pins = bpffs();
    let none = None::<&str>;
    mount(none, pins.path(), none, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, none).unwrap();
    let world = World::new();
    let refused = start(setup(Some(pins.path()))).unwrap_err();
    assert!(refused.to_string().contains("cannot make the folder"), "{refused}");
    serve_echo(&world, (BACKEND, 8080).into());
    let running = Running::start(&world, Setup { mode: DatapathMode::Auto, ..setup(Some(pins.path())) });
    running.serve_all(1, &[(key(Transport::Tcp, 80), (BACKEND, 8080).into())]);
    connect(&world, (VIP, 80).into());
    running.crash();
}

#[test]
fn clsact_filter_is_replaced_in_place_and_removed() {
    let world = World::new();
    world.agent.run(|| {
        let objects = load::objects(&Keeper::Process, 1_024).unwrap();
        let interfaces = addresses::read().unwrap();
        let attach = || {
            let program = objects.l4_ingress.as_ref().unwrap().try_clone().unwrap();
            let mut kept = std::collections::BTreeMap::new();
            let mut attachments = Attachments::new(program, Mechanism::Clsact, Keeper::Process, &mut kept);
            attachments.follow(&interfaces);
            assert_eq!(attachments.interfaces().len(), 2, "both, and not the loopback");
            attachments
        };
        // Dropped without a word, as in a crash: the filter stays.
        drop(attach());
        let mut attachments = attach();
        let filters = output("tc", "filter show dev front ingress");
        assert_eq!(filters.matches("direct-action").count(), 1, "{filters}");
        attachments.detach_all();
        assert_eq!(output("tc", "filter show dev front ingress"), "");
    });
}

#[test]
fn this_kernel_has_what_it_says() {
    let world = World::new();
    let paths = world.agent.run(|| start(setup(None)).unwrap().paths().clone());
    assert!(paths.is_complete(), "{paths}");
    let userspace = start(Setup { mode: DatapathMode::Userspace, ..setup(None) }).unwrap();
    assert!(userspace.steering().is_none());
    assert!(userspace.paths().to_string().contains("--datapath userspace"), "{}", userspace.paths());
}
