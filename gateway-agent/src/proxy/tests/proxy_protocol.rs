//! The PROXY protocol on both sides, at every kind of listener. The parser has tests of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::harness::{
    Harness, HttpsListener, V4, V6, at, connect, echo, ending, exchange, expecting, http, https, is_reset,
    key, refusing, soon, tcp, telling, terminate, tls, try_exchange,
};
use super::https::get;
use super::pki::{Ca, client};
use crate::metrics::HeaderFailure;
use crate::proxy::Timeouts;
use crate::proxy::proxy_protocol::{Ends, Header, Parser, encode};
use crate::proxy::tls::maker::Maker;
use crate::snapshot::{BackendSecurity, ListenerKey, ProxyVersion, TlsTerms, Transport};

const VERSIONS: [ProxyVersion; 2] = [ProxyVersion::V1, ProxyVersion::V2];
const LOOPBACK: &[&str] = &["127.0.0.0/8", "::1/128"];
const NAME: &str = "tls.example.com";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

fn ends(client: &str, local: &str) -> Ends {
    Ends { client: client.parse().expect("address"), local: local.parse().expect("address") }
}

/// A client that no socket here has.
fn announced() -> Ends {
    ends("192.0.2.7:4000", "198.51.100.1:443")
}

fn header(version: ProxyVersion) -> Vec<u8> {
    encode(version, announced(), "")
}

/// A connection that begins with these bytes, byte by byte where `is_cut`.
async fn beginning(address: SocketAddr, bytes: &[u8], is_cut: bool) -> TcpStream {
    let mut stream = connect(address).await;
    stream.set_nodelay(true).expect("nodelay");
    for piece in bytes.chunks(if is_cut { 1 } else { bytes.len().max(1) }) {
        soon(stream.write_all(piece)).await.expect("write");
        tokio::task::yield_now().await;
    }
    stream
}

/// Sends the rest and the end, and reads what comes.
async fn finish(mut stream: impl AsyncRead + AsyncWrite + Unpin, message: &[u8]) -> Vec<u8> {
    soon(async {
        stream.write_all(message).await.expect("write");
        stream.shutdown().await.expect("end");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("answer");
        answer
    })
    .await
}

/// A server that wants to be told of clients, by TLS after that or in clear, and echoes the rest. Who they were comes out of
/// the channel, with the whole header.
async fn told(secure: Option<ServerConfig>) -> (SocketAddr, mpsc::Receiver<(Header, Vec<u8>)>) {
    let listener = TcpListener::bind((V4, 0)).await.expect("bind");
    let address = listener.local_addr().expect("address");
    let acceptor = secure.map(|config| TlsAcceptor::from(Arc::new(config)));
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut parser, mut header) = (Parser::default(), Vec::new());
            let found = loop {
                header.push(soon(stream.read_u8()).await.expect("a whole header"));
                let (_, found) = parser.feed(&header[header.len() - 1..]).expect("a header");
                if let Some(found) = found {
                    break found;
                }
            };
            sender.send((found, header)).await.expect("a test");
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                match acceptor {
                    None => copied(stream).await,
                    Some(acceptor) => copied(acceptor.accept(stream).await?).await,
                }
            });
        }
    });
    (address, receiver)
}

async fn copied(stream: impl AsyncRead + AsyncWrite) -> std::io::Result<()> {
    let (mut read, mut write) = tokio::io::split(stream);
    tokio::io::copy(&mut read, &mut write).await?;
    write.shutdown().await
}

/// An HTTP server whose answer is the head of the request.
async fn mirror() -> SocketAddr {
    let listener = TcpListener::bind((V4, 0)).await.expect("bind");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(soon(stream.read_u8()).await.expect("a head"));
            }
            let answer =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", head.len());
            stream.write_all(&[answer.as_bytes(), &head].concat()).await.expect("answer");
        }
    });
    address
}

/// A request that ends its connection.
fn last() -> Vec<u8> {
    get("/", NAME).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Sends the only request of a connection and reads what comes.
async fn ask_last(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Vec<u8> {
    soon(async {
        stream.write_all(&last()).await.expect("request");
        stream.flush().await.expect("flush");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("answer");
        answer
    })
    .await
}

fn says_client(answer: &[u8], client: &str) -> bool {
    String::from_utf8_lossy(answer).to_ascii_lowercase().contains(&format!("x-forwarded-for: {client}\r\n"))
}

#[tokio::test]
async fn tcp_backend_is_told_of_the_client_that_the_header_names() {
    let mut harness = Harness::new();
    for version in VERSIONS {
        let (backend, mut clients) = told(None).await;
        let key = key(Transport::Tcp, None);
        harness.serve(vec![telling(expecting(tcp(key, &[backend]), LOOPBACK), version)]).await;
        for (address, header, is_cut) in [
            (V4, header(ProxyVersion::V1), false),
            (V6, header(ProxyVersion::V2), true),
            (V6, header(ProxyVersion::V1), true),
        ] {
            // What follows the header comes with it, and is not touched.
            let stream = beginning(at(address, key), &[&header, b"first".as_slice()].concat(), is_cut).await;
            assert_eq!(finish(stream, b" and last").await, b"first and last");
            let (client, wire) = soon(clients.recv()).await.expect("told");
            assert_eq!(client, Header::Proxied(announced()));
            assert_eq!(wire, encode(version, announced(), ""));
        }
        // A sender that speaks for itself.
        let stream = beginning(at(V4, key), LOCAL, false).await;
        let own = Ends { client: stream.local_addr().expect("address"), local: at(V4, key) };
        assert_eq!(finish(stream, b"health").await, b"health");
        assert_eq!(soon(clients.recv()).await.expect("told").0, Header::Proxied(own));
    }
    harness.end().await;
}

#[tokio::test]
async fn tcp_backend_is_told_before_anyone_has_said_anything() {
    let mut harness = Harness::new();
    let (backend, mut clients) = told(None).await;
    let key = key(Transport::Tcp, None);
    harness.serve(vec![telling(tcp(key, &[backend]), ProxyVersion::V2)]).await;
    for address in [V4, V6] {
        let stream = connect(at(address, key)).await;
        let own = Ends { client: stream.local_addr().expect("address"), local: at(address, key) };
        assert_eq!(soon(clients.recv()).await.expect("told").0, Header::Proxied(own));
        assert_eq!(finish(stream, b"hello").await, b"hello");
    }
    // Another endpoint is told where the first refuses.
    let targets = [refusing(V4), refusing(V4), backend];
    harness.serve(vec![telling(tcp(key, &targets), ProxyVersion::V1)]).await;
    soon(async { while exchange(at(V4, key), b"again").await != b"again" {} }).await;
    harness.end().await;
}

#[tokio::test]
async fn requests_are_those_of_the_client_that_the_header_names() {
    let mut harness = Harness::new();
    let ca = Ca::new("servers");
    let terms = TlsTerms { certificates: [ca.issue(&[NAME]).certificate].into(), clients: None };
    let backend = mirror().await;
    let (plain, secure) = (key(Transport::Tcp, None), key(Transport::Tcp, None));
    let one = HttpsListener { hostname: Some(NAME), terms, backend };
    harness
        .serve(vec![
            expecting(http(plain, &[backend]), LOOPBACK),
            expecting(https(secure, &[one], &[]), LOOPBACK),
        ])
        .await;
    for (version, is_cut) in [(ProxyVersion::V1, true), (ProxyVersion::V2, false)] {
        let stream = beginning(at(V6, plain), &header(version), is_cut).await;
        let answer = ask_last(stream).await;
        assert!(says_client(&answer, "192.0.2.7"), "{}", String::from_utf8_lossy(&answer));
        let stream = beginning(at(V4, secure), &header(version), is_cut).await;
        let connector = TlsConnector::from(client(&ca, None));
        let shaken = soon(connector.connect(NAME.try_into().expect("a name"), stream)).await.expect("shakes");
        let answer = ask_last(shaken).await;
        assert!(says_client(&answer, "192.0.2.7"), "{}", String::from_utf8_lossy(&answer));
    }
    let stream = beginning(at(V4, plain), b"PROXY UNKNOWN\r\n", false).await;
    assert!(says_client(&ask_last(stream).await, "127.0.0.1"));
    harness.end().await;
}

#[tokio::test]
async fn backends_of_tls_routes_are_told_of_client_and_server_name() {
    let mut harness = Harness::new();
    let (ca, backends) = (Ca::new("servers"), Ca::new("backends"));
    let terms = || TlsTerms { certificates: [ca.issue(&[NAME]).certificate].into(), clients: None };
    let (passed, mut passed_clients) = told(None).await;
    let (clear, mut clear_clients) = told(None).await;
    let (secure, mut secure_clients) = told(Some(backends.issue(&["abc.example.com"]).server(None))).await;
    let [to_clear, to_secure] = [(), ()].map(|()| key(Transport::Tcp, Some(V4)));
    let in_clear = terminate(
        to_clear,
        (NAME, terms()),
        (clear, BackendSecurity::Cleartext),
        None,
        Some(("raw.example.com", passed)),
    );
    let by_tls = terminate(
        to_secure,
        (NAME, terms()),
        (secure, backends.security("abc.example.com", &[])),
        None,
        None,
    );
    for version in VERSIONS {
        let listeners = [&in_clear, &by_tls];
        let listeners = listeners.map(|one| telling(expecting(one.clone(), LOOPBACK), version));
        harness.serve(listeners.into()).await;
        let hello = Maker::named("raw.example.com").wire();
        let stream = beginning(at(V4, to_clear), &[header(version), hello.clone()].concat(), true).await;
        assert_eq!(finish(stream, b"and more").await, [hello.as_slice(), b"and more"].concat());
        let expected = (Header::Proxied(announced()), encode(version, announced(), "raw.example.com"));
        assert_eq!(soon(passed_clients.recv()).await.expect("told"), expected);
        for (key, clients) in [(to_clear, &mut clear_clients), (to_secure, &mut secure_clients)] {
            let stream = beginning(at(V4, key), &header(version), false).await;
            let connector = TlsConnector::from(client(&ca, None));
            let shaken =
                soon(connector.connect(NAME.try_into().expect("a name"), stream)).await.expect("shakes");
            assert_eq!(finish(shaken, b"hello").await, b"hello");
            let expected = (Header::Proxied(announced()), encode(version, announced(), NAME));
            assert_eq!(soon(clients.recv()).await.expect("told"), expected);
        }
    }
    harness.end().await;
}

/// What the numbers of refused connections come to at a listener, by reason.
fn failures(harness: &Harness, key: ListenerKey) -> Vec<(HeaderFailure, u64)> {
    let text = harness.text();
    let number = |reason: HeaderFailure| {
        let (port, reason) = (key.port, reason.as_str());
        let series =
            format!("{{namespace=\"default\",gateway=\"gw\",listener=\"port-{port}\",reason=\"{reason}\"}} ");
        let name = "gateway_agent_listener_proxy_header_failures_total";
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(&series));
        line.map_or(0, |number| number.parse().expect("a number"))
    };
    HeaderFailure::ALL.map(|reason| (reason, number(reason))).into_iter().filter(|(_, n)| *n > 0).collect()
}

#[tokio::test]
async fn connection_without_a_header_to_believe_is_reset_and_counted() {
    // Far longer than the test, so that nothing is refused for being slow.
    let timeouts = Timeouts { proxy_header: Duration::from_secs(600), ..Timeouts::default() };
    let mut harness = Harness::with(timeouts, None);
    let backend = echo(V4, b"reached").await;
    let raw: &[(Option<&str>, Option<&[SocketAddr]>)] = &[(None, Some(&[backend]))];
    let [tcp_key, http_key, tls_key, foreign] = [(); 4].map(|()| key(Transport::Tcp, Some(V4)));
    harness
        .serve(vec![
            expecting(tcp(tcp_key, &[backend]), LOOPBACK),
            expecting(http(http_key, &[backend]), LOOPBACK),
            expecting(tls(tls_key, raw), LOOPBACK),
            expecting(tcp(foreign, &[backend]), &["192.0.2.0/24", "::/0"]),
        ])
        .await;
    let whole = [header(ProxyVersion::V2), b"hello".to_vec()].concat();
    for key in [tcp_key, http_key, tls_key] {
        for (bytes, is_ended) in [
            (last(), false),
            (Maker::default().wire(), false),
            (b"PROXY TCP4 192.0.2.7 192.0.2.8 1 99999\r\n".to_vec(), false),
            (whole[..20].to_vec(), true),
        ] {
            let mut stream = beginning(at(V4, key), &bytes, false).await;
            if is_ended {
                soon(stream.shutdown()).await.expect("end");
            }
            let end = ending(&mut stream).await;
            assert!(is_reset(&end), "{key} {bytes:?}: {end:?}");
        }
        // Left without a byte: a health check, which nobody is to be alarmed by.
        let mut stream = connect(at(V4, key)).await;
        soon(stream.shutdown()).await.expect("end");
        assert_eq!(ending(&mut stream).await.expect("a clean end"), b"");
        assert_eq!(failures(&harness, key), [(HeaderFailure::Closed, 1), (HeaderFailure::Invalid, 3)]);
    }
    // Its header is as it should be, but who are they to say.
    assert!(is_reset(&try_exchange(at(V4, foreign), &whole).await));
    assert_eq!(failures(&harness, foreign), [(HeaderFailure::Untrusted, 1)]);
    harness.end().await;
}

#[tokio::test]
async fn header_has_to_be_whole_by_its_deadline() {
    let timeouts = Timeouts { proxy_header: Duration::from_millis(200), ..Timeouts::default() };
    let mut harness = Harness::with(timeouts, None);
    let backend = echo(V4, b"reached").await;
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![expecting(tcp(key, &[backend]), LOOPBACK)]).await;
    for bytes in [b"".as_slice(), b"PROXY TCP4 192.0.2.7", &header(ProxyVersion::V2)[..20]] {
        let mut stream = beginning(at(V4, key), bytes, false).await;
        let end = ending(&mut stream).await;
        assert!(is_reset(&end), "{bytes:?}: {end:?}");
    }
    assert_eq!(failures(&harness, key), [(HeaderFailure::Timeout, 3)]);
    harness.end().await;
}
