//! The TCP relay, from client to backend. Kernel paths have tests of their own.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};

use super::harness::{
    Harness, V4, V6, at, connect, echo, ending, exchange, is_reset, key, listener, refusing, service, soon,
    tcp, try_exchange,
};
use crate::proxy::Timeouts;
use crate::snapshot::{Protocol, RouteKind, Transport};

#[tokio::test]
async fn both_families_reach_backends_of_both_families() {
    let mut harness = Harness::new();
    let (v4, v6) = (echo(V4, b"four ").await, echo(V6, b"six ").await);
    let (to_v4, to_v6) = (key(Transport::Tcp, None), key(Transport::Tcp, None));
    harness.serve(vec![tcp(to_v4, &[v4]), tcp(to_v6, &[v6])]).await;
    for client in [V4, V6] {
        assert_eq!(exchange(at(client, to_v4), b"hello").await, b"four hello");
        assert_eq!(exchange(at(client, to_v6), b"hello").await, b"six hello");
    }
    harness.end().await;
}

// O10 (a): every byte, then FIN; the other direction stays open.
#[tokio::test]
async fn slow_reader_gets_every_byte_before_fin_and_may_answer_after_it() {
    const BYTES: usize = 1 << 20;
    let mut harness = Harness::new();
    let socket = TcpSocket::new_v4().expect("socket");
    socket.set_recv_buffer_size(4096).expect("small buffer");
    socket.bind((V4, 0).into()).expect("bind");
    let backend = socket.listen(8).expect("listen");
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![tcp(key, &[backend.local_addr().expect("address")])]).await;

    let mut client = connect(at(V4, key)).await;
    let sent: Vec<u8> = (0..BYTES).map(|i| (i % 251) as u8).collect();
    let server = tokio::spawn(async move {
        let (mut stream, _) = soon(backend.accept()).await.expect("accept");
        let mut received = Vec::new();
        let mut piece = [0; 3000];
        loop {
            let n = soon(stream.read(&mut piece)).await.expect("read");
            if n == 0 {
                break;
            }
            received.extend_from_slice(&piece[..n]);
            tokio::task::yield_now().await;
        }
        stream.write_all(b"got it all").await.expect("answer");
        received
    });
    soon(client.write_all(&sent)).await.expect("write");
    soon(client.shutdown()).await.expect("shutdown");
    assert_eq!(ending(&mut client).await.expect("answer"), b"got it all");
    assert_eq!(soon(server).await.expect("server"), sent);
    harness.end().await;
}

// Enough bytes both ways at once that the pipes are used.
#[tokio::test]
async fn bulk_arrives_unchanged_in_both_directions() {
    const BYTES: usize = 24 << 20;
    let mut harness = Harness::new();
    let backend = echo(V4, b"").await;
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![tcp(key, &[backend])]).await;
    let client = connect(at(V4, key)).await;
    let (mut read, mut write) = client.into_split();
    let sent: Vec<u8> = (0..BYTES).map(|i| (i * 7 % 253) as u8).collect();
    let expected = sent.clone();
    let writer = tokio::spawn(async move {
        write.write_all(&sent).await.expect("write");
        write.shutdown().await.expect("shutdown");
    });
    let mut received = Vec::with_capacity(BYTES);
    soon(read.read_to_end(&mut received)).await.expect("read");
    assert!(received == expected);
    soon(writer).await.expect("writer");
    harness.end().await;
}

// O10 (b): the second FIN that never comes.
#[tokio::test]
async fn half_closed_connection_is_reaped_after_silence() {
    let timeouts = Timeouts { half_closed: Duration::from_millis(200), ..Timeouts::default() };
    let mut harness = Harness::with(timeouts, None);
    let backend = TcpListener::bind((V4, 0)).await.expect("bind");
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![tcp(key, &[backend.local_addr().expect("address")])]).await;
    let mut client = connect(at(V4, key)).await;
    let (mut upstream, _) = soon(backend.accept()).await.expect("accept");
    soon(upstream.shutdown()).await.expect("shutdown");
    assert_eq!(ending(&mut client).await.expect("FIN is passed on"), b"");
    // The client never ends its side: the upstream is told.
    assert!(is_reset(&ending(&mut upstream).await));
    harness.end().await;
}

#[tokio::test]
async fn open_connection_outlives_the_half_closed_timer() {
    let timeouts = Timeouts { half_closed: Duration::from_millis(1), ..Timeouts::default() };
    let mut harness = Harness::with(timeouts, None);
    let backend = echo(V4, b"").await;
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![tcp(key, &[backend])]).await;
    let mut client = connect(at(V4, key)).await;
    let mut byte = [0];
    for _ in 0..3 {
        soon(client.write_all(b"x")).await.expect("write");
        soon(client.read_exact(&mut byte)).await.expect("read");
        // The timer would have fired many times over.
        tokio::time::timeout(Duration::from_millis(30), std::future::pending::<()>())
            .await
            .expect_err("time");
    }
    harness.end().await;
}

#[tokio::test]
async fn reset_of_one_side_resets_the_other() {
    let mut harness = Harness::new();
    let backend = TcpListener::bind((V4, 0)).await.expect("bind");
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![tcp(key, &[backend.local_addr().expect("address")])]).await;

    let mut client = connect(at(V4, key)).await;
    let (upstream, _) = soon(backend.accept()).await.expect("accept");
    upstream.set_zero_linger().expect("linger");
    drop(upstream);
    assert!(is_reset(&ending(&mut client).await));

    let client = connect(at(V4, key)).await;
    let (mut upstream, _) = soon(backend.accept()).await.expect("accept");
    client.set_zero_linger().expect("linger");
    drop(client);
    assert!(is_reset(&ending(&mut upstream).await));
    harness.end().await;
}

#[tokio::test]
async fn reset_is_noticed_while_the_other_side_does_not_read() {
    let mut harness = Harness::new();
    let backend = TcpListener::bind((V4, 0)).await.expect("bind");
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![tcp(key, &[backend.local_addr().expect("address")])]).await;
    let client = connect(at(V4, key)).await;
    let (mut upstream, _) = soon(backend.accept()).await.expect("accept");
    // The upstream never reads, so the relay stands still with bytes in hand.
    let block = vec![0; 1 << 20];
    while let Ok(result) = tokio::time::timeout(Duration::from_millis(300), async {
        client.writable().await.map(|()| client.try_write(&block))
    })
    .await
    {
        result.expect("writable").ok();
    }
    client.set_zero_linger().expect("linger");
    drop(client);
    soon(upstream.ready(tokio::io::Interest::ERROR)).await.expect("ready");
    let mut answer = Vec::new();
    // What arrived before the reset can still be read.
    assert!(soon(upstream.read_to_end(&mut answer)).await.is_err());
    harness.end().await;
}

// O08: told at once.
#[tokio::test]
async fn refused_share_is_reset_and_no_endpoint_is_a_closed_port() {
    let mut harness = Harness::new();
    let backend = echo(V4, b"").await;
    let mixed = key(Transport::Tcp, Some(V4));
    let empty = key(Transport::Tcp, Some(V4));
    let shares = Protocol::Tcp(service(RouteKind::Tcp, &[None, Some(backend)]));
    harness.serve(vec![listener(mixed, shares), tcp(empty, &[])]).await;

    let (mut refused, mut answered) = (0, 0);
    for _ in 0..40 {
        let result = try_exchange(at(V4, mixed), b"x").await;
        match &result {
            Ok(answer) => {
                assert_eq!(answer, b"x");
                answered += 1;
            }
            Err(_) => {
                assert!(is_reset(&result), "{result:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && answered > 0, "{refused} {answered}");

    let error = soon(tokio::net::TcpStream::connect(at(V4, empty))).await.expect_err("closed port");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    harness.serve(vec![tcp(empty, &[backend])]).await;
    assert_eq!(exchange(at(V4, empty), b"back").await, b"back");
    harness.end().await;
}

#[tokio::test]
async fn backend_that_refuses_is_replaced_by_another() {
    let mut harness = Harness::new();
    let backend = echo(V4, b"").await;
    let (some, none) = (key(Transport::Tcp, Some(V4)), key(Transport::Tcp, Some(V4)));
    harness
        .serve(vec![
            tcp(some, &[refusing(V4), backend, refusing(V4)]),
            tcp(none, &[refusing(V4), refusing(V4)]),
        ])
        .await;
    for _ in 0..10 {
        assert_eq!(exchange(at(V4, some), b"x").await, b"x");
    }
    let result = try_exchange(at(V4, none), b"x").await;
    assert!(is_reset(&result), "{result:?}");
    harness.end().await;
}
