//! TLS passthrough, from client to backend. The parser has tests of its own.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::harness::{
    Harness, PATIENCE, V4, V6, at, connect, echo, ending, is_reset, key, refusing, soon, tls,
};
use crate::proxy::Timeouts;
use crate::proxy::tls::maker::Maker;
use crate::snapshot::Transport;

/// Sends `wire` in the given pieces and expects `greeting` and all of it back.
async fn echoed(address: SocketAddr, greeting: &[u8], pieces: impl Iterator<Item = &[u8]>) {
    let mut stream = connect(address).await;
    stream.set_nodelay(true).expect("nodelay");
    let mut sent = greeting.to_vec();
    for piece in pieces {
        soon(stream.write_all(piece)).await.expect("write");
        sent.extend_from_slice(piece);
        tokio::task::yield_now().await;
    }
    soon(stream.shutdown()).await.expect("shutdown");
    assert_eq!(ending(&mut stream).await.expect("answer"), sent);
}

#[tokio::test]
async fn name_decides_and_every_byte_arrives_unchanged() {
    let mut harness = Harness::new();
    let (exact, wild, any) = (echo(V4, b"exact").await, echo(V6, b"wild").await, echo(V4, b"any").await);
    let key = key(Transport::Tcp, None);
    let hosts: &[(Option<&str>, Option<&[SocketAddr]>)] = &[
        (Some("app.example.com"), Some(&[exact])),
        (Some("*.example.com"), Some(&[wild])),
        (None, Some(&[any])),
    ];
    harness.serve(vec![tls(key, hosts)]).await;
    let default = Maker::default();
    // O03: capitals; O01: large and padded hellos; O02: many records; no name: the catch-all.
    let cases: &[(Maker, &[u8])] = &[
        (Maker::named("App.EXAMPLE.com"), b"exact"),
        (Maker::named("a.b.example.com"), b"wild"),
        (Maker::named("other.org"), b"any"),
        (Maker { name: None, ..default.clone() }, b"any"),
        (Maker { post_quantum: true, encrypted_hello: true, ..default.clone() }, b"exact"),
        (Maker { record_bytes: 1, ..default.clone() }, b"exact"),
        (Maker { pad_to: 16 * 1024, post_quantum: true, ..default }, b"exact"),
    ];
    for (maker, greeting) in cases {
        let mut wire = maker.wire();
        wire.extend_from_slice(b"what follows the hello");
        for client in [V4, V6] {
            echoed(at(client, key), greeting, wire.chunks(1400)).await;
        }
    }
    // O01: byte by byte.
    let wire = Maker { post_quantum: true, ..Maker::default() }.wire();
    echoed(at(V4, key), b"exact", wire.chunks(1)).await;
    harness.end().await;
}

#[tokio::test]
async fn what_cannot_be_routed_is_reset_without_a_byte() {
    let mut harness = Harness::new();
    let backend = echo(V4, b"").await;
    let key = key(Transport::Tcp, Some(V4));
    let hosts: &[(Option<&str>, Option<&[SocketAddr]>)] = &[
        (Some("app.example.com"), Some(&[backend])),
        (Some("invalid.example.com"), None),
        (Some("empty.example.com"), Some(&[])),
    ];
    harness.serve(vec![tls(key, hosts)]).await;
    let cases: &[(&str, Vec<u8>)] = &[
        ("no route", Maker::named("other.org").wire()),
        ("no name", Maker { name: None, ..Maker::default() }.wire()),
        ("invalid backend", Maker::named("invalid.example.com").wire()),
        ("no endpoint", Maker::named("empty.example.com").wire()),
        ("not TLS", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("PostgreSQL", b"\0\0\0\x08\x04\xd2\x16\x2f".to_vec()),
        ("empty records", [22, 3, 1, 0, 0].repeat(100)),
        (
            "too many records",
            [22, 3, 1, 0, 1, 1].into_iter().chain([22, 3, 1, 0, 1, 0].repeat(20_000)).collect(),
        ),
    ];
    for (case, wire) in cases {
        let mut stream = connect(at(V4, key)).await;
        // The reset may come while this is still being written.
        soon(stream.write_all(wire)).await.ok();
        let result = ending(&mut stream).await;
        assert!(is_reset(&result) || is_broken_pipe(&result), "{case}: {result:?}");
    }
    harness.end().await;
}

fn is_broken_pipe(result: &std::io::Result<Vec<u8>>) -> bool {
    // After a write that met the reset, a read sees the end.
    matches!(result, Ok(answer) if answer.is_empty())
}

#[tokio::test]
async fn endpoint_that_refuses_is_replaced_by_another() {
    let mut harness = Harness::new();
    let backend = echo(V6, b"").await;
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![tls(key, &[(None, Some(&[refusing(V4), backend, refusing(V4)]))])]).await;
    let wire = Maker::default().wire();
    for _ in 0..10 {
        echoed(at(V4, key), b"", wire.chunks(200)).await;
    }
    harness.end().await;
}

// O04: the socket of a silent client, or of one that stops within its hello, is freed at the deadline; others are
// served meanwhile.
#[tokio::test]
async fn silent_clients_are_freed_at_the_deadline_and_hold_up_nobody() {
    let timeouts = Timeouts { hello: Duration::from_secs(2), ..Timeouts::default() };
    let mut harness = Harness::with(timeouts, None);
    let backend = echo(V4, b"").await;
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![tls(key, &[(None, Some(&[backend]))])]).await;
    let wire = Maker::default().wire();
    let mut silent: Vec<TcpStream> = Vec::new();
    for i in 0..50 {
        let mut stream = connect(at(V4, key)).await;
        if i % 2 == 0 {
            soon(stream.write_all(&wire[..wire.len() / 2])).await.expect("half a hello");
        }
        silent.push(stream);
    }
    echoed(at(V4, key), b"", wire.chunks(1000)).await;
    for mut stream in silent {
        assert!(is_reset(&ending(&mut stream).await));
    }
    harness.end().await;
}

#[tokio::test]
async fn backend_may_speak_before_the_client_goes_on() {
    let mut harness = Harness::new();
    let backend = echo(V4, b"server first").await;
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![tls(key, &[(None, Some(&[backend]))])]).await;
    let wire = Maker::default().wire();
    let mut stream = connect(at(V4, key)).await;
    soon(stream.write_all(&wire)).await.expect("write");
    let mut answer = vec![0; 12 + wire.len()];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("in time").expect("read");
    assert_eq!(answer.get(..12).expect("greeting"), b"server first");
    assert_eq!(answer.get(12..).expect("echo"), wire);
    harness.end().await;
}
