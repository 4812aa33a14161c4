//! TLSRoutes of listeners that terminate TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;

use super::harness::{Harness, V4, at, connect, echo, ending, is_reset, key, refusing, soon, terminate};
use super::https::try_shake;
use super::pki::{Ca, Issued, client, web};
use crate::proxy::tls::maker::Maker;
use crate::snapshot::{BackendSecurity, ClientTrust, TlsTerms, Transport};

const NAME: &str = "tls.example.com";

fn terms(server: &Issued, clients: Option<Arc<ClientTrust>>) -> TlsTerms {
    TlsTerms { certificates: [server.certificate.clone()].into(), clients }
}

fn in_clear(backend: SocketAddr) -> (SocketAddr, BackendSecurity) {
    (backend, BackendSecurity::Cleartext)
}

/// Sends `message` and the end, and reads what comes until TLS's own end.
async fn exchange(stream: &mut TlsStream<TcpStream>, message: &[u8]) -> std::io::Result<Vec<u8>> {
    let (mut read, mut write) = tokio::io::split(stream);
    soon(async {
        let send = async {
            write.write_all(message).await?;
            write.shutdown().await
        };
        let receive = async {
            let mut answer = Vec::new();
            read.read_to_end(&mut answer).await.map(|_| answer)
        };
        let (sent, received) = tokio::join!(send, receive);
        sent.and(received)
    })
    .await
}

#[tokio::test]
async fn bytes_go_on_in_clear_and_a_listener_that_passes_on_lives_beside() {
    let mut harness = Harness::new();
    let ca = Ca::new("servers");
    let (server, backend) = (ca.issue(&[NAME]), echo(V4, b"hello ").await);
    let passed = echo(V4, b"passed on").await;
    let key = key(Transport::Tcp, Some(V4));
    let passthrough = Some(("raw.example.com", passed));
    let listener = terminate(key, (NAME, terms(&server, None)), in_clear(backend), None, passthrough);
    harness.serve(vec![listener]).await;
    // Far more than any buffer on the way, so that both directions have to wait for each other.
    let message: Vec<u8> = (0..4_000_000u32).map(|n| (n % 251) as u8).collect();
    for message in [b"".as_slice(), b"a few bytes", &message] {
        let mut stream = try_shake(at(V4, key), NAME, &client(&ca, None)).await.expect("shakes");
        let answer = exchange(&mut stream, message).await.expect("whole");
        assert!(answer == [b"hello ", message].concat(), "{} bytes", answer.len());
    }
    let wire = Maker::named("raw.example.com").wire();
    let mut raw = connect(at(V4, key)).await;
    soon(raw.write_all(&wire)).await.expect("hello");
    soon(raw.shutdown()).await.expect("end");
    assert_eq!(ending(&mut raw).await.expect("echo"), [b"passed on".as_slice(), &wire].concat());
    harness.end().await;
}

#[tokio::test]
async fn backend_with_a_policy_is_spoken_to_by_tls() {
    let mut harness = Harness::new();
    let (ca, backends, clients) = (Ca::new("servers"), Ca::new("backends"), Ca::new("gateways"));
    let (server, own) = (ca.issue(&[NAME]), clients.issue(&["gateway"]));
    let backend = web(backends.issue(&["abc.example.com"]).server(Some(&clients)), &[&own]).await;
    for (name, is_reached) in [("abc.example.com", true), ("else.example.com", false)] {
        let key = key(Transport::Tcp, Some(V4));
        let target = (backend, backends.security(name, &[]));
        let shown = Some(own.certificate.clone());
        harness.serve(vec![terminate(key, (NAME, terms(&server, None)), target, shown, None)]).await;
        let mut stream = try_shake(at(V4, key), NAME, &client(&ca, None)).await.expect("shakes");
        let answer = exchange(&mut stream, b"GET /last HTTP/1.1\r\n\r\n").await;
        match answer {
            Ok(answer) => {
                let answer = String::from_utf8_lossy(&answer).into_owned();
                assert!(is_reached && answer.contains("name=abc.example.com client=Some(0)"), "{answer}");
            }
            Err(error) => assert!(!is_reached, "{error}"),
        }
    }
    harness.end().await;
}

#[tokio::test]
async fn clients_are_validated_here_too() {
    let mut harness = Harness::new();
    let (ca, clients) = (Ca::new("servers"), Ca::new("clients"));
    let (server, backend) = (ca.issue(&[NAME]), echo(V4, b"in").await);
    let key = key(Transport::Tcp, Some(V4));
    let terms = terms(&server, Some(clients.trust(false)));
    harness.serve(vec![terminate(key, (NAME, terms), in_clear(backend), None, None)]).await;
    let good = clients.issue(&["client"]);
    for (own, is_in) in [(Some(&good), true), (None, false)] {
        let answer = match try_shake(at(V4, key), NAME, &client(&ca, own)).await {
            Ok(mut stream) => exchange(&mut stream, b"").await,
            Err(error) => Err(error),
        };
        assert_eq!(answer.is_ok_and(|answer| answer == b"in"), is_in);
    }
    harness.end().await;
}

#[tokio::test]
async fn what_cannot_be_served_ends_at_once() {
    let mut harness = Harness::new();
    let ca = Ca::new("servers");
    let server = ca.issue(&[NAME]);
    let key = key(Transport::Tcp, Some(V4));
    let refused = [
        in_clear(refusing(V4)),
        (echo(V4, b"never").await, BackendSecurity::Refused),
        (echo(V4, b"no TLS").await, Ca::new("backends").security("abc.example.com", &[])),
    ];
    for target in refused {
        harness.serve(vec![terminate(key, (NAME, terms(&server, None)), target, None, None)]).await;
        let mut stream = try_shake(at(V4, key), NAME, &client(&ca, None)).await.expect("shakes");
        assert!(exchange(&mut stream, b"anyone?").await.is_err());
    }
    // A name without a listener: TLS would end here.
    let mut stranger = connect(at(V4, key)).await;
    soon(stranger.write_all(&Maker::named("other.example.com").wire())).await.expect("hello");
    assert_eq!(ending(&mut stranger).await.expect("an alert"), [21, 3, 3, 0, 2, 2, 112]);
    harness.end().await;
}

// A cut stream must not look complete, on either side.
#[tokio::test]
async fn cut_on_one_side_is_a_reset_on_the_other() {
    let mut harness = Harness::new();
    let ca = Ca::new("servers");
    let server = ca.issue(&[NAME]);
    let listening = TcpListener::bind((V4, 0)).await.expect("bind");
    let backend = listening.local_addr().expect("address");
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![terminate(key, (NAME, terms(&server, None)), in_clear(backend), None, None)]).await;
    let shaken = || async { try_shake(at(V4, key), NAME, &client(&ca, None)).await.expect("shakes") };
    // The client goes without TLS's end.
    let mut stream = shaken().await;
    soon(stream.write_all(b"half a mess")).await.expect("writes");
    soon(stream.flush()).await.expect("flush");
    let (mut behind, _) = soon(listening.accept()).await.expect("accepts");
    let mut start = [0; 11];
    soon(behind.read_exact(&mut start)).await.expect("what was sent");
    drop(stream.into_inner().0);
    assert!(is_reset(&ending(&mut behind).await));
    // The backend resets.
    let mut stream = shaken().await;
    let (behind, _) = soon(listening.accept()).await.expect("accepts");
    behind.set_zero_linger().expect("linger");
    drop(behind);
    let mut answer = Vec::new();
    assert!(soon(stream.read_to_end(&mut answer)).await.is_err());
    harness.end().await;
}
