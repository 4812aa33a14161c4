//! The UDP relay, from client to backend. The flow table has tests of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;

use super::harness::{Harness, V4, V6, at, key, refusing, soon, udp};
use crate::proxy::Timeouts;
use crate::proxy::limits::Budget;
use crate::snapshot::Transport;

const SECOND_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// A UDP server that answers each datagram with `prefix` and the datagram.
async fn echo(address: IpAddr, prefix: &'static [u8]) -> SocketAddr {
    let socket = UdpSocket::bind((address, 0)).await.expect("bind");
    let local = socket.local_addr().expect("address");
    tokio::spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok((n, peer)) = socket.recv_from(&mut buffer).await {
            let mut answer = prefix.to_vec();
            answer.extend_from_slice(&buffer[..n]);
            socket.send_to(&answer, peer).await.ok();
        }
    });
    local
}

async fn client(address: IpAddr) -> UdpSocket {
    UdpSocket::bind((address, 0)).await.expect("bind")
}

/// Sends `message` and returns the answer and where it came from.
async fn ask(client: &UdpSocket, to: SocketAddr, message: &[u8]) -> (Vec<u8>, SocketAddr) {
    soon(client.send_to(message, to)).await.expect("send");
    let mut buffer = vec![0; 1 << 16];
    let (n, from) = soon(client.recv_from(&mut buffer)).await.expect("answer");
    buffer.truncate(n);
    (buffer, from)
}

/// Asks again until the answer is `expected`: datagrams may be lost while a flow moves.
async fn ask_until(client: &UdpSocket, to: SocketAddr, expected: &[u8]) {
    soon(async {
        let mut buffer = vec![0; 1 << 16];
        loop {
            client.send_to(b"", to).await.expect("send");
            let answer =
                tokio::time::timeout(Duration::from_millis(100), client.recv_from(&mut buffer)).await;
            if let Ok(Ok((n, _))) = answer
                && buffer.get(..n) == Some(expected)
            {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn both_families_reach_backends_of_both_families() {
    let mut harness = Harness::new();
    let (v4, v6) = (echo(V4, b"four ").await, echo(V6, b"six ").await);
    let (to_v4, to_v6) = (key(Transport::Udp, None), key(Transport::Udp, None));
    harness.serve(vec![udp(to_v4, &[v4]), udp(to_v6, &[v6])]).await;
    for address in [V4, V6] {
        let client = client(address).await;
        assert_eq!(ask(&client, at(address, to_v4), b"hello").await.0, b"four hello");
        assert_eq!(ask(&client, at(address, to_v6), b"hello").await.0, b"six hello");
        // An empty datagram is a datagram.
        assert_eq!(ask(&client, at(address, to_v4), b"").await.0, b"four ");
    }
    harness.end().await;
}

#[tokio::test]
async fn answer_leaves_from_the_address_that_was_asked() {
    let mut harness = Harness::new();
    let backend = echo(V4, b"").await;
    let (any, one) = (key(Transport::Udp, None), key(Transport::Udp, Some(SECOND_V4)));
    harness.serve(vec![udp(any, &[backend]), udp(one, &[backend])]).await;
    let client = client(IpAddr::V4(Ipv4Addr::LOCALHOST)).await;
    for to in [at(V4, any), at(SECOND_V4, any), at(SECOND_V4, one)] {
        assert_eq!(ask(&client, to, b"x").await, (b"x".to_vec(), to));
    }
    harness.end().await;
}

// O14: datagrams larger than the MTU, up to the largest that IPv4 can carry.
#[tokio::test]
async fn large_datagrams_arrive_whole() {
    let mut harness = Harness::new();
    let backend = echo(V4, b"").await;
    let key = key(Transport::Udp, None);
    harness.serve(vec![udp(key, &[backend])]).await;
    let client = client(V4).await;
    for length in [3_000, 65_507] {
        let message: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
        assert!(ask(&client, at(V4, key), &message).await.0 == message, "{length}");
    }
    harness.end().await;
}

// O15: a flow keeps its backend as long as that is one of the service's, and leaves it then.
#[tokio::test]
async fn flow_stays_with_its_backend_until_that_leaves_the_service() {
    let mut harness = Harness::new();
    let (a, b) = (echo(V4, b"a").await, echo(V4, b"b").await);
    let key = key(Transport::Udp, None);
    harness.serve(vec![udp(key, &[a, b])]).await;
    let client = client(V4).await;
    let (first, _) = ask(&client, at(V4, key), b"").await;
    let (mine, other, other_name) = if first == b"a" { (a, b, b"b") } else { (b, a, b"a") };
    // Another table that still has it: nothing changes, whatever the slots say.
    harness.serve(vec![udp(key, &[other, mine, other])]).await;
    assert_eq!(ask(&client, at(V4, key), b"").await.0, first);
    harness.serve(vec![udp(key, &[other])]).await;
    ask_until(&client, at(V4, key), other_name).await;
    harness.end().await;
}

#[tokio::test]
async fn flow_leaves_a_backend_that_refuses() {
    let mut harness = Harness::new();
    let backend = echo(V4, b"alive").await;
    let key = key(Transport::Udp, None);
    harness.serve(vec![udp(key, &[refusing(V4), backend])]).await;
    for _ in 0..8 {
        ask_until(&client(V4).await, at(V4, key), b"alive").await;
    }
    harness.end().await;
}

// O08: the kernel answers for a listener without endpoints.
#[tokio::test]
async fn no_endpoint_is_a_closed_port_until_one_comes() {
    let mut harness = Harness::new();
    let key = key(Transport::Udp, Some(V4));
    harness.serve(vec![udp(key, &[])]).await;
    let client = client(V4).await;
    client.connect(at(V4, key)).await.expect("connect");
    client.send(b"x").await.expect("send");
    let error = soon(client.recv(&mut [0])).await.expect_err("refused");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let backend = echo(V4, b"").await;
    harness.serve(vec![udp(key, &[backend])]).await;
    client.send(b"y").await.expect("send");
    let mut byte = [0];
    assert_eq!(soon(client.recv(&mut byte)).await.expect("answer"), 1);
    harness.end().await;
}

#[tokio::test]
async fn idle_flow_ends_and_the_next_datagram_begins_another() {
    let timeouts = Timeouts { udp_idle: Duration::from_millis(50), ..Timeouts::default() };
    let mut harness = Harness::with(timeouts, None);
    let backend = UdpSocket::bind((V4, 0)).await.expect("bind");
    let key = key(Transport::Udp, None);
    harness.serve(vec![udp(key, &[backend.local_addr().expect("address")])]).await;
    let client = client(V4).await;
    let mut buffer = [0; 8];
    soon(client.send_to(b"x", at(V4, key))).await.expect("send");
    let (_, first) = soon(backend.recv_from(&mut buffer)).await.expect("datagram");
    // The flow's own socket tells flows apart; while it lives the port does not change.
    soon(async {
        loop {
            tokio::time::timeout(Duration::from_millis(150), std::future::pending::<()>())
                .await
                .expect_err("time");
            client.send_to(b"x", at(V4, key)).await.expect("send");
            let (_, now) = backend.recv_from(&mut buffer).await.expect("datagram");
            if now != first {
                break;
            }
        }
    })
    .await;
    harness.end().await;
}

#[tokio::test]
async fn full_flow_table_forgets_the_flow_that_was_idle_for_longest() {
    let mut harness = Harness::within(Budget { connections: 16, pipes: 0, udp_flows: 2 });
    let backend = UdpSocket::bind((V4, 0)).await.expect("bind");
    let key = key(Transport::Udp, None);
    harness.serve(vec![udp(key, &[backend.local_addr().expect("address")])]).await;
    let clients = [client(V4).await, client(V4).await, client(V4).await];
    // The flow's own socket, as the backend sees it.
    let flow_of = async |client: &UdpSocket| {
        soon(client.send_to(b"x", at(V4, key))).await.expect("send");
        soon(backend.recv_from(&mut [0])).await.expect("datagram").1
    };
    let [first, second, third] = &clients;
    let before = [flow_of(first).await, flow_of(second).await];
    assert_eq!(flow_of(first).await, before[0]);
    // Takes the place of the second, which was idle for longest.
    flow_of(third).await;
    assert_eq!(flow_of(first).await, before[0]);
    assert_ne!(flow_of(second).await, before[1]);
    harness.end().await;
}
