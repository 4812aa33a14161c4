//! Opening, closing, steering and draining of listeners, without regard to what they serve.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::harness::{
    Harness, V4, at, connect, echo, ending, exchange, is_reset, key, served, soon, tcp, udp,
};
use crate::proxy::Timeouts;
use crate::proxy::limits::Budget;
use crate::proxy::steering::Steering;
use crate::snapshot::{ListenerKey, Transport};
use crate::status::Served;

#[tokio::test]
async fn closing_a_listener_keeps_its_connections() {
    let mut harness = Harness::new();
    let backend = echo(V4, b"").await;
    let (stays, goes) = (key(Transport::Tcp, Some(V4)), key(Transport::Tcp, None));
    let applied = harness.serve(vec![tcp(stays, &[backend]), tcp(goes, &[backend])]).await;
    assert_eq!(served(&applied), [(stays, Served::By("bind")), (goes, Served::By("bind"))].into());

    let mut client = connect(at(V4, goes)).await;
    let mut byte = [0];
    soon(client.write_all(b"1")).await.expect("write");
    soon(client.read_exact(&mut byte)).await.expect("read");
    let applied = harness.serve(vec![tcp(stays, &[backend])]).await;
    assert_eq!(served(&applied), [(stays, Served::By("bind"))].into());
    soon(async { while TcpStream::connect(at(V4, goes)).await.is_ok() {} }).await;

    soon(client.write_all(b"2")).await.expect("write");
    soon(client.read_exact(&mut byte)).await.expect("read");
    assert_eq!(exchange(at(V4, stays), b"x").await, b"x");
    // The same port again, while a connection of the old listener lives.
    harness.serve(vec![tcp(stays, &[backend]), tcp(goes, &[backend])]).await;
    assert_eq!(exchange(at(V4, goes), b"x").await, b"x");
    harness.end().await;
}

#[tokio::test]
async fn connections_that_the_kernel_has_accepted_are_served_though_the_listener_closes() {
    let mut harness = Harness::new();
    let backend = echo(V4, b"").await;
    let key = key(Transport::Tcp, Some(V4));
    for _ in 0..10 {
        harness.serve(vec![tcp(key, &[backend])]).await;
        let address = at(V4, key);
        // Connected in the instant in which the listener goes; none of them may be reset.
        let clients: Vec<_> =
            (0..20).map(|_| std::net::TcpStream::connect(address).expect("connects")).collect();
        harness.serve(vec![]).await;
        for client in clients {
            client.set_nonblocking(true).expect("nonblocking");
            let mut client = TcpStream::from_std(client).expect("stream");
            soon(client.write_all(b"x")).await.expect("write");
            soon(client.shutdown()).await.expect("shutdown");
            assert_eq!(ending(&mut client).await.expect("served"), b"x");
        }
    }
    harness.end().await;
}

#[tokio::test]
async fn taken_port_is_unavailable_until_it_is_freed() {
    let mut harness = Harness::new();
    let backend = echo(V4, b"").await;
    for transport in [Transport::Tcp, Transport::Udp] {
        let key = key(transport, None);
        let address = at(V4, key);
        // With SO_REUSEPORT, a group of ours could join it; that is no less another's port.
        let other = match transport {
            Transport::Tcp => socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None),
            Transport::Udp => socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None),
        }
        .expect("socket");
        other.set_reuse_port(true).expect("reuse");
        other.bind(&address.into()).expect("bind");
        if transport == Transport::Tcp {
            other.listen(1).expect("listen");
        }
        let wanted = match transport {
            Transport::Tcp => tcp(key, &[backend]),
            Transport::Udp => udp(key, &[backend]),
        };
        let applied = harness.serve(vec![wanted]).await;
        let failed = served(&applied).remove(&key);
        assert!(
            matches!(&failed, Some(Served::Failed { reason: "PortUnavailable", .. })),
            "{transport:?}: {failed:?}"
        );
        drop(other);
        harness.applied(|applied| applied.listeners.get(&key) == Some(&Served::By("bind"))).await;
    }
    harness.end().await;
}

#[tokio::test]
async fn taken_port_is_reported_also_where_nothing_is_to_be_served() {
    let mut harness = Harness::new();
    let key = key(Transport::Tcp, None);
    let other = std::net::TcpListener::bind(at(V4, key)).expect("bind");
    let applied = harness.serve(vec![tcp(key, &[])]).await;
    assert!(matches!(served(&applied).get(&key), Some(Served::Failed { reason: "PortUnavailable", .. })));
    drop(other);
    harness.applied(|applied| applied.listeners.get(&key) == Some(&Served::By("closed"))).await;
    harness.end().await;
}

#[tokio::test]
async fn address_of_another_host_is_pending() {
    let mut harness = Harness::new();
    let key = key(Transport::Tcp, Some("192.0.2.1".parse().expect("address")));
    let backend = echo(V4, b"").await;
    let applied = harness.serve(vec![tcp(key, &[backend])]).await;
    assert!(matches!(served(&applied).get(&key), Some(Served::Failed { reason: "Pending", .. })));
    harness.end().await;
}

#[tokio::test]
async fn wildcard_may_take_the_place_of_an_address() {
    let mut harness = Harness::new();
    let backend = echo(V4, b"").await;
    let one = key(Transport::Tcp, Some(V4));
    let any = ListenerKey { address: None, ..one };
    for key in [one, any, one] {
        let applied = harness.serve(vec![tcp(key, &[backend])]).await;
        assert_eq!(served(&applied), [(key, Served::By("bind"))].into());
        assert_eq!(exchange(at(V4, key), b"x").await, b"x");
    }
    harness.end().await;
}

#[tokio::test]
async fn drain_finishes_what_is_under_way_and_takes_nothing_new() {
    let mut harness = Harness::new();
    let backend = echo(V4, b"").await;
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![tcp(key, &[backend])]).await;
    let mut client = connect(at(V4, key)).await;
    let mut byte = [0];
    soon(client.write_all(b"1")).await.expect("write");
    soon(client.read_exact(&mut byte)).await.expect("read");

    harness.drain.stop();
    soon(async { while TcpStream::connect(at(V4, key)).await.is_ok() {} }).await;
    soon(client.write_all(b"2")).await.expect("write");
    soon(client.shutdown()).await.expect("shutdown");
    assert_eq!(ending(&mut client).await.expect("rest"), b"2");
    // Nothing is left, so the threads end without an abort.
    soon(harness.proxy.join()).await.expect("no worker panics");
}

#[tokio::test]
async fn grace_period_ends_by_reset() {
    let mut harness = Harness::new();
    let backend = echo(V4, b"x").await;
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![tcp(key, &[backend])]).await;
    let mut client = connect(at(V4, key)).await;
    let mut byte = [0];
    soon(client.read_exact(&mut byte)).await.expect("read");
    let Harness { proxy, drain, .. } = harness;
    let join = proxy.join();
    tokio::pin!(join);
    let in_time = drain.run(Duration::from_millis(300), async { drop((&mut join).await) }).await;
    assert!(!in_time);
    soon(join).await.expect("no worker panics");
    assert!(is_reset(&ending(&mut client).await));
}

/// Keeps what it was given; connections are made to the sockets' own ports.
#[derive(Debug, Default)]
struct Recorder {
    open: Mutex<Vec<(ListenerKey, OwnedFd, OwnedFd)>>,
    is_broken: bool,
}

impl Steering for Recorder {
    fn open(&self, key: ListenerKey, v4: BorrowedFd<'_>, v6: BorrowedFd<'_>) -> std::io::Result<()> {
        if self.is_broken {
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        let (v4, v6) = (v4.try_clone_to_owned()?, v6.try_clone_to_owned()?);
        self.open.lock().expect("lock").push((key, v4, v6));
        Ok(())
    }

    fn close(&self, key: ListenerKey) {
        self.open.lock().expect("lock").retain(|(open, ..)| *open != key);
    }
}

#[tokio::test]
async fn steered_listener_is_not_bound_and_serves_through_its_group() {
    let steering = Arc::new(Recorder::default());
    let mut harness = Harness::with(Timeouts::default(), Some(steering.clone()));
    let backend = echo(V4, b"").await;
    let key = key(Transport::Tcp, None);
    let applied = harness.serve(vec![tcp(key, &[backend])]).await;
    assert_eq!(served(&applied), [(key, Served::By("sk_lookup"))].into());
    assert!(TcpStream::connect(at(V4, key)).await.is_err());
    let addresses: Vec<_> = {
        let open = steering.open.lock().expect("lock");
        let (_, v4, v6) = open.first().expect("registered");
        [v4, v6]
            .map(|fd| {
                let address = socket2::SockRef::from(&fd.as_fd()).local_addr().expect("address");
                address.as_socket().expect("internet address")
            })
            .into()
    };
    assert!(addresses.iter().all(|address| address.ip().is_loopback()));
    for address in addresses {
        for _ in 0..10 {
            assert_eq!(exchange(address, b"x").await, b"x");
        }
    }
    harness.serve(vec![]).await;
    assert!(steering.open.lock().expect("lock").is_empty());
    harness.end().await;
}

#[tokio::test]
async fn steering_takes_no_port_from_another_process() {
    let mut harness = Harness::with(Timeouts::default(), Some(Arc::new(Recorder::default())));
    let key = key(Transport::Tcp, None);
    let other = std::net::TcpListener::bind(at(V4, key)).expect("bind");
    let backend = echo(V4, b"").await;
    let applied = harness.serve(vec![tcp(key, &[backend])]).await;
    assert!(matches!(served(&applied).get(&key), Some(Served::Failed { reason: "PortUnavailable", .. })));
    drop(other);
    harness.applied(|applied| applied.listeners.get(&key) == Some(&Served::By("sk_lookup"))).await;
    harness.end().await;
}

#[tokio::test]
async fn listener_is_bound_where_steering_fails() {
    let steering = Recorder { is_broken: true, ..Recorder::default() };
    let mut harness = Harness::with(Timeouts::default(), Some(Arc::new(steering)));
    let backend = echo(V4, b"").await;
    let key = key(Transport::Tcp, None);
    let applied = harness.serve(vec![tcp(key, &[backend])]).await;
    assert_eq!(served(&applied), [(key, Served::By("bind"))].into());
    assert_eq!(exchange(at(V4, key), b"x").await, b"x");
    harness.end().await;
}

#[tokio::test]
async fn accepting_pauses_at_the_bound_and_goes_on_when_one_ends() {
    let mut harness = Harness::within(Budget { connections: 2, pipes: 0, udp_flows: 16 });
    let backend = echo(V4, b"x").await;
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![tcp(key, &[backend])]).await;
    let mut byte = [0];
    let (mut first, mut second) = (connect(at(V4, key)).await, connect(at(V4, key)).await);
    soon(first.read_exact(&mut byte)).await.expect("greeting");
    soon(second.read_exact(&mut byte)).await.expect("greeting");
    // The kernel takes it; the worker does not.
    let mut third = connect(at(V4, key)).await;
    tokio::time::timeout(Duration::from_millis(200), third.read_exact(&mut byte)).await.expect_err("waits");
    drop(first);
    soon(third.read_exact(&mut byte)).await.expect("greeting");
    harness.end().await;
}
