//! TLS termination, from client to backend, by a client that checks certificates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::harness::{
    Harness, HttpsListener, V4, V6, at, connect, echo, ending, https, is_reset, key, soon, tls_listener_name,
};
use crate::certificate::Certificate;
use crate::metrics::HandshakeFailure;
use crate::proxy::Timeouts;
use crate::proxy::tls::maker::Maker;
use crate::snapshot::{TlsTerms, Transport};

/// A certificate for `names` as a listener has it, and as a client trusts it.
fn certificate(names: &[&str]) -> (Arc<Certificate>, CertificateDer<'static>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().expect("key");
    let chain = CertificateParams::new(names).expect("names").self_signed(&key).expect("certificate");
    let parsed = Certificate::parse(chain.pem().as_bytes(), key.serialize_pem().as_bytes()).expect("parses");
    (Arc::new(parsed), chain.der().clone())
}

/// A client that trusts exactly these.
fn client(trusted: &[&CertificateDer<'static>]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add((*certificate).clone()).expect("a root");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    builder.expect("versions").with_root_certificates(roots).with_no_client_auth()
}

pub(super) async fn try_shake(
    address: SocketAddr,
    name: &str,
    config: &Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = connect(address).await;
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    soon(TlsConnector::from(config.clone()).connect(name, stream)).await
}

async fn shake(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> TlsStream<TcpStream> {
    try_shake(address, name, config).await.unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(super) fn get(path: &str, host: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// Sends a request and reads its answer, which has a Content-Length.
pub(super) async fn ask(stream: &mut TlsStream<TcpStream>, request: &str) -> String {
    soon(stream.write_all(request.as_bytes())).await.expect("request");
    soon(stream.flush()).await.expect("flush");
    read_answer(stream).await
}

async fn read_answer(stream: &mut TlsStream<TcpStream>) -> String {
    soon(async {
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.expect("a whole head"));
        }
        let head = String::from_utf8(answer).expect("text");
        let length = head.to_ascii_lowercase();
        let length = length.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let mut body = vec![0; length.expect("a length").parse().expect("a number")];
        stream.read_exact(&mut body).await.expect("a whole body");
        head + &String::from_utf8_lossy(&body)
    })
    .await
}

/// A web server whose answers hold its `name` and the request with its body. `/close` ends by close.
pub(super) async fn web(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((V4, 0)).await.expect("bind");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let served: std::io::Result<()> = async {
                    loop {
                        let mut request = Vec::new();
                        while !request.ends_with(b"\r\n\r\n") {
                            request.push(stream.read_u8().await?);
                        }
                        let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
                        let length =
                            head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
                        let start = request.len();
                        request.resize(start + length.map_or(0, |length| length.parse().unwrap_or(0)), 0);
                        stream.read_exact(request.get_mut(start..).unwrap_or_default()).await?;
                        if head.starts_with("get /close") {
                            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nuntil the end").await?;
                            return stream.shutdown().await;
                        }
                        let length = name.len() + 1 + request.len();
                        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}\n");
                        stream.write_all(answer.as_bytes()).await?;
                        stream.write_all(&request).await?;
                    }
                }
                .await;
                served
            });
        }
    });
    address
}

fn of<'a>(
    hostname: Option<&'a str>,
    certificates: &[&Arc<Certificate>],
    backend: SocketAddr,
) -> HttpsListener<'a> {
    let certificates = certificates.iter().copied().cloned().collect();
    HttpsListener { hostname, terms: TlsTerms { certificates, clients: None }, backend }
}

#[tokio::test]
async fn name_chooses_listener_and_certificate_and_passthrough_lives_beside() {
    let mut harness = Harness::new();
    let (one, one_der) = certificate(&["one.example.com"]);
    let (two, two_der) = certificate(&["*.two.example.com"]);
    let (more, more_der) = certificate(&["more.two.example.com"]);
    let (web_one, web_two) = (web("one").await, web("two").await);
    let passed = echo(V4, b"passed on").await;
    let key = key(Transport::Tcp, None);
    let listeners = [
        of(Some("one.example.com"), &[&one], web_one),
        of(Some("*.two.example.com"), &[&two, &more], web_two),
    ];
    harness.serve(vec![https(key, &listeners, &[("raw.example.com", passed)])]).await;
    for address in [at(V4, key), at(V6, key)] {
        for (name, trusted, backend) in [
            ("one.example.com", &one_der, "one"),
            ("a.two.example.com", &two_der, "two"),
            ("more.two.example.com", &more_der, "two"),
        ] {
            let config = Arc::new(client(&[trusted]));
            let mut stream = shake(address, name, &config).await;
            assert_eq!(stream.get_ref().1.protocol_version(), Some(ProtocolVersion::TLSv1_3));
            let group = stream.get_ref().1.negotiated_key_exchange_group().expect("agreed").name();
            assert_eq!(group, rustls::NamedGroup::X25519MLKEM768);
            for _ in 0..3 {
                let answer = ask(&mut stream, &get("/a?b", name)).await;
                assert!(answer.contains(&format!("\r\n\r\n{backend}\nGET /a?b HTTP/1.1\r\n")), "{answer}");
                assert!(answer.contains("X-Forwarded-Proto: https\r\n"), "{answer}");
            }
        }
    }
    let wire = Maker::named("raw.example.com").wire();
    let mut raw = connect(at(V4, key)).await;
    soon(raw.write_all(&wire)).await.expect("hello");
    soon(raw.shutdown()).await.expect("end");
    assert_eq!(ending(&mut raw).await.expect("echo"), [b"passed on".as_slice(), &wire].concat());
    // A passthrough listener could be meant: no alert.
    let mut stranger = connect(at(V4, key)).await;
    soon(stranger.write_all(&Maker::named("other.org").wire())).await.expect("hello");
    assert!(is_reset(&ending(&mut stranger).await));
    harness.end().await;
}

#[tokio::test]
async fn name_without_listener_is_told_where_all_listeners_terminate() {
    let mut harness = Harness::new();
    let (one, _) = certificate(&["one.example.com"]);
    let key = key(Transport::Tcp, Some(V4));
    let backend = web("one").await;
    harness.serve(vec![https(key, &[of(Some("one.example.com"), &[&one], backend)], &[])]).await;
    for hello in [Maker::named("other.org"), Maker { name: None, ..Maker::default() }] {
        let mut stream = connect(at(V4, key)).await;
        soon(stream.write_all(&hello.wire())).await.expect("hello");
        assert_eq!(ending(&mut stream).await.expect("an alert"), [21, 3, 3, 0, 2, 2, 112]);
    }
    harness.end().await;
}

// `Listener.hostname` in `gateway_types.go`.
#[tokio::test]
async fn host_of_another_listener_is_421_and_of_none_404() {
    let mut harness = Harness::new();
    let (one, one_der) = certificate(&["one.example.com", "sub.any.org"]);
    let (key, backend) = (key(Transport::Tcp, Some(V4)), web("web").await);
    let named = [of(Some("one.example.com"), &[&one], backend), of(Some("*.example.com"), &[&one], backend)];
    harness.serve(vec![https(key, &named, &[])]).await;
    let config = Arc::new(client(&[&one_der]));
    let mut stream = shake(at(V4, key), "one.example.com", &config).await;
    for (host, status) in [
        ("one.example.com", 200),
        ("ONE.example.com:443", 200),
        ("two.example.com", 421),
        ("elsewhere.org", 404),
        ("one.example.com", 200),
    ] {
        let answer = ask(&mut stream, &get("/", host)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
    }
    // With a catch-all, an unknown host is its own.
    let with_any = [of(Some("one.example.com"), &[&one], backend), of(None, &[&one], backend)];
    harness.serve(vec![https(key, &with_any, &[])]).await;
    let answer = ask(&mut stream, &get("/", "elsewhere.org")).await;
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    let mut stream = shake(at(V4, key), "sub.any.org", &config).await;
    for (host, status) in [("elsewhere.org", 200), ("sub.any.org", 200), ("one.example.com", 421)] {
        let answer = ask(&mut stream, &get("/", host)).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
    }
    harness.end().await;
}

#[tokio::test]
async fn new_certificate_serves_new_handshakes_and_open_connections_go_on() {
    let mut harness = Harness::new();
    let (old, old_der) = certificate(&["a.example.com"]);
    let (new, new_der) = certificate(&["a.example.com"]);
    let (key, backend) = (key(Transport::Tcp, Some(V4)), web("web").await);
    harness.serve(vec![https(key, &[of(None, &[&old], backend)], &[])]).await;
    let (trusts_old, trusts_new) = (Arc::new(client(&[&old_der])), Arc::new(client(&[&new_der])));
    let mut open = shake(at(V4, key), "a.example.com", &trusts_old).await;
    ask(&mut open, &get("/", "a.example.com")).await;
    harness.serve(vec![https(key, &[of(None, &[&new], backend)], &[])]).await;
    let answer = ask(&mut open, &get("/", "a.example.com")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let mut fresh = shake(at(V4, key), "a.example.com", &trusts_new).await;
    ask(&mut fresh, &get("/", "a.example.com")).await;
    // A ticket of the old certificate does not open the new one.
    assert!(try_shake(at(V4, key), "a.example.com", &trusts_old).await.is_err());
    harness.end().await;
}

#[tokio::test]
async fn sessions_are_resumed_on_every_worker_and_over_other_changes() {
    let mut harness = Harness::new();
    let (one, der) = certificate(&["a.example.com"]);
    let (key, backend) = (key(Transport::Tcp, Some(V4)), web("web").await);
    let (trusting, mut kinds) = (Arc::new(client(&[&der])), Vec::new());
    for _ in 0..4 {
        // Each revision has tables of its own; the certificate stays.
        harness.serve(vec![https(key, &[of(None, &[&one], backend)], &[])]).await;
        for _ in 0..4 {
            let mut stream = shake(at(V4, key), "a.example.com", &trusting).await;
            ask(&mut stream, &get("/", "a.example.com")).await;
            kinds.push(stream.get_ref().1.handshake_kind());
        }
    }
    let (first, others) = kinds.split_first().expect("sixteen");
    assert_eq!(*first, Some(HandshakeKind::Full));
    assert!(others.iter().all(|kind| *kind == Some(HandshakeKind::Resumed)), "{others:?}");
    harness.end().await;
}

#[tokio::test]
async fn bodies_of_any_size_pass_and_an_end_by_close_is_whole() {
    let mut harness = Harness::new();
    let (one, der) = certificate(&["a.example.com"]);
    let (key, backend) = (key(Transport::Tcp, Some(V4)), web("web").await);
    harness.serve(vec![https(key, &[of(None, &[&one], backend)], &[])]).await;
    let config = Arc::new(client(&[&der]));
    let mut stream = shake(at(V4, key), "a.example.com", &config).await;
    for size in [0, 1, 5_000, 16_384, 16_385, 100_000, 3_000_000] {
        let body: String = (0..size).map(|n: u32| char::from(b'a' + (n % 23) as u8)).collect();
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
        let (mut reader, mut writer) = tokio::io::split(stream);
        let sent = head + &body;
        let sending = tokio::spawn(async move {
            soon(writer.write_all(sent.as_bytes())).await.expect("sent");
            soon(writer.flush()).await.expect("flushed");
            writer
        });
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(soon(reader.read_u8()).await.expect("head"));
        }
        let text = String::from_utf8(answer).expect("text");
        let length = text.split("Content-Length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let mut all = vec![0; length.expect("a length").parse().expect("a number")];
        soon(reader.read_exact(&mut all)).await.expect("body");
        assert!(all.ends_with(body.as_bytes()), "{size}");
        stream = reader.unsplit(sending.await.expect("no panic"));
    }
    // Requests that came in one record wait decrypted.
    let three = get("/1", "a") + &get("/2", "a") + &get("/3", "a");
    let answers =
        [ask(&mut stream, &three).await, read_answer(&mut stream).await, read_answer(&mut stream).await];
    for (n, answer) in (1..).zip(answers) {
        assert!(answer.contains(&format!("GET /{n} ")), "{answer}");
    }
    soon(stream.write_all(get("/close", "a").as_bytes())).await.expect("request");
    let mut rest = Vec::new();
    // Fails where the end is not announced.
    soon(stream.read_to_end(&mut rest)).await.expect("a whole end");
    assert!(rest.ends_with(b"until the end"));
    harness.end().await;
}

/// Waits until the metrics hold `text`.
pub(super) async fn shows(harness: &Harness, text: &str) {
    let shown = async {
        while !harness.text().contains(text) {
            tokio::task::yield_now().await;
        }
    };
    soon(shown).await;
}

#[tokio::test]
async fn failed_handshakes_end_and_are_counted_by_reason() {
    let timeouts = Timeouts { handshake: Duration::from_secs(1), ..Timeouts::default() };
    let mut harness = Harness::with(timeouts, None);
    let (one, der) = certificate(&["a.example.com"]);
    let (key, backend) = (key(Transport::Tcp, Some(V4)), web("web").await);
    let listeners = [of(Some("a.example.com"), &[&one], backend), of(Some("bare.example.com"), &[], backend)];
    harness.serve(vec![https(key, &listeners, &[])]).await;
    let address = at(V4, key);
    // The client does not trust the certificate.
    let (_, other) = certificate(&["a.example.com"]);
    assert!(try_shake(address, "a.example.com", &Arc::new(client(&[&other]))).await.is_err());
    // Nothing in common after the handshake.
    let mut old = client(&[&der]);
    old.alpn_protocols = vec![b"spdy/3".to_vec()];
    assert!(try_shake(address, "a.example.com", &Arc::new(old)).await.is_err());
    // No certificate.
    assert!(try_shake(address, "bare.example.com", &Arc::new(client(&[&der]))).await.is_err());
    // A hello and then silence, or the end.
    let hello = Maker::named("a.example.com").wire();
    let mut silent = connect(address).await;
    soon(silent.write_all(&hello)).await.expect("hello");
    ending(&mut silent).await.ok();
    for (section, reason) in [
        ("a.example.com", HandshakeFailure::Alert),
        ("a.example.com", HandshakeFailure::Incompatible),
        ("bare.example.com", HandshakeFailure::NoCertificate),
    ] {
        let name = tls_listener_name(key, Some(section));
        shows(&harness, &format!(r#"listener="{}",reason="{}""#, name.section, reason.as_str())).await;
    }
    let mut good = shake(address, "a.example.com", &Arc::new(client(&[&der]))).await;
    ask(&mut good, &get("/", "a.example.com")).await;
    assert!(harness.text().contains("listener_tls_handshakes_total{"));
    harness.end().await;
}

#[tokio::test]
async fn handshakes_that_stall_are_freed_at_the_deadline() {
    let timeouts = Timeouts { handshake: Duration::from_secs(1), ..Timeouts::default() };
    let mut harness = Harness::with(timeouts, None);
    let (one, der) = certificate(&["a.example.com"]);
    let (key, backend) = (key(Transport::Tcp, Some(V4)), web("web").await);
    harness.serve(vec![https(key, &[of(None, &[&one], backend)], &[])]).await;
    // A real hello, and nothing after it.
    let config = Arc::new(client(&[&der]));
    let name = ServerName::try_from("a.example.com").expect("a name");
    let mut session = rustls::ClientConnection::new(config.clone(), name).expect("session");
    let mut hello = Vec::new();
    session.write_tls(&mut hello).expect("hello");
    let mut silent = Vec::new();
    for _ in 0..20 {
        let mut stream = connect(at(V4, key)).await;
        soon(stream.write_all(&hello)).await.expect("hello");
        silent.push(stream);
    }
    let mut good = shake(at(V4, key), "a.example.com", &config).await;
    ask(&mut good, &get("/", "a.example.com")).await;
    for mut stream in silent {
        // What the server had to say, then the end.
        ending(&mut stream).await.ok();
    }
    shows(&harness, r#"reason="timeout"} 20"#).await;
    harness.end().await;
}

#[tokio::test]
async fn idle_connections_are_told_of_the_end_when_the_proxy_stops() {
    let mut harness = Harness::new();
    let (one, der) = certificate(&["a.example.com"]);
    let (key, backend) = (key(Transport::Tcp, Some(V4)), web("web").await);
    harness.serve(vec![https(key, &[of(None, &[&one], backend)], &[])]).await;
    let mut stream = shake(at(V4, key), "a.example.com", &Arc::new(client(&[&der]))).await;
    ask(&mut stream, &get("/", "a")).await;
    harness.drain.stop();
    assert_eq!(soon(stream.read(&mut [0])).await.expect("an announced end"), 0);
    harness.end().await;
}
