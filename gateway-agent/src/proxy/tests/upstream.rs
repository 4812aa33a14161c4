//! Backends that are spoken to by TLS: BackendTLSPolicy and the Gateway's client certificate.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::harness::{Harness, V4, at, connect, echo, key, secured, soon};
use super::pki::{Ca, Issued, web};
use crate::certificate::Certificate;
use crate::snapshot::{BackendSecurity, Listener, ListenerKey, SubjectName, Transport};

const NAME: &str = "backend.example.com";

fn to(key: ListenerKey, backend: SocketAddr, security: BackendSecurity) -> Listener {
    secured(key, &[backend], security, None)
}

fn showing(key: ListenerKey, backend: SocketAddr, security: BackendSecurity, own: &Issued) -> Listener {
    let certificate: Arc<Certificate> = own.certificate.clone();
    secured(key, &[backend], security, Some(certificate))
}

/// The status line and the body of an answer to a request on an open connection.
async fn ask(stream: &mut TcpStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a.example.com\r\n\r\n");
    soon(async {
        stream.write_all(request.as_bytes()).await.expect("request");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a whole head"));
        }
        let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
        stream.read_exact(&mut body).await.expect("a whole body");
        format!("{} {}", head.split(' ').nth(1).unwrap_or_default(), String::from_utf8_lossy(&body))
    })
    .await
}

/// The same on a connection of its own.
async fn get(key: ListenerKey, path: &str) -> String {
    ask(&mut connect(at(V4, key)).await, path).await
}

/// The connection that an answer came by.
fn connection(answer: &str) -> &str {
    answer.split("connection=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or("none")
}

#[tokio::test]
async fn backend_is_asked_by_its_name_and_connections_are_kept() {
    let mut harness = Harness::within(crate::proxy::limits::Budget::new(10_000, 1));
    let ca = Ca::new("backends");
    let backend = web(ca.issue(&[NAME]).server(None), &[]).await;
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![to(key, backend, ca.security(NAME, &[]))]).await;
    let first = get(key, "/").await;
    assert_eq!(first, "200 connection=0 name=backend.example.com client=None handshake=Full");
    for _ in 0..5 {
        assert_eq!(get(key, "/").await, first);
    }
    harness.end().await;
}

#[tokio::test]
async fn session_is_resumed_where_the_backend_has_closed() {
    let mut harness = Harness::within(crate::proxy::limits::Budget::new(10_000, 1));
    let ca = Ca::new("backends");
    let backend = web(ca.issue(&[NAME]).server(None), &[]).await;
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![to(key, backend, ca.security(NAME, &[]))]).await;
    assert!(get(key, "/last").await.ends_with("handshake=Full"));
    let next = get(key, "/").await;
    assert!(next.starts_with("200 connection=1 ") && next.ends_with("handshake=Resumed"), "{next}");
    harness.end().await;
}

#[tokio::test]
async fn backend_that_cannot_show_who_it_is_gets_no_request() {
    let mut harness = Harness::new();
    let (ca, other) = (Ca::new("backends"), Ca::new("backends"));
    let by = async |issued: Issued| web(issued.server(None), &[]).await;
    let good = by(ca.issue(&[NAME])).await;
    let cases = [
        ("another authority", by(other.issue(&[NAME])).await, NAME),
        ("another name", good, "else.example.com"),
        ("expired", by(ca.issue_expired(&[NAME])).await, NAME),
        ("no TLS at all", echo(V4, b"these words are no TLS record").await, NAME),
    ];
    for (case, backend, name) in cases {
        let key = key(Transport::Tcp, Some(V4));
        harness.serve(vec![to(key, backend, ca.security(name, &[]))]).await;
        assert!(get(key, "/").await.starts_with("502 "), "{case}");
    }
    // What a policy forbids is not even tried.
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![to(key, good, BackendSecurity::Refused)]).await;
    assert!(get(key, "/").await.starts_with("500 "));
    harness.end().await;
}

// `BackendTLSPolicyValidation.subjectAltNames`
#[tokio::test]
async fn one_of_the_alternative_names_has_to_be_in_the_certificate() {
    let mut harness = Harness::new();
    let ca = Ca::new("backends");
    let dns = |name: &str| SubjectName::Hostname(name.into());
    let uri = |name: &str| SubjectName::Uri(name.into());
    let own: &[&str] = &["other.example.com", "*.wild.example.com", "spiffe://example.com/backend"];
    let backend = web(ca.issue(own).server(None), &[]).await;
    for (names, status) in [
        // The hostname chooses the certificate and counts no more.
        (vec![dns("other.example.com")], "200"),
        (vec![dns(NAME)], "502"),
        (vec![uri("spiffe://example.com/backend")], "200"),
        (vec![uri("spiffe://example.com/backend2")], "502"),
        (vec![uri("spiffe://example.com/else"), dns("other.example.com")], "200"),
        (vec![uri("spiffe://example.com/else"), dns("else.example.com")], "502"),
        (vec![dns("a.wild.example.com")], "200"),
        (vec![dns("a.b.wild.example.com")], "502"),
        (vec![dns("*.wild.example.com")], "200"),
        (vec![dns("*.example.com")], "200"),
        (vec![dns("*.com")], "502"),
        (vec![dns("")], "502"),
    ] {
        let key = key(Transport::Tcp, Some(V4));
        harness.serve(vec![to(key, backend, ca.security(NAME, &names))]).await;
        let answer = get(key, "/").await;
        assert!(answer.starts_with(status), "{names:?}: {answer}");
    }
    harness.end().await;
}

#[tokio::test]
async fn gateways_show_their_own_certificates_and_never_share_a_connection() {
    let mut harness = Harness::within(crate::proxy::limits::Budget::new(10_000, 1));
    let (ca, clients) = (Ca::new("backends"), Ca::new("gateways"));
    let (one, two) = (clients.issue(&["one"]), clients.issue(&["two"]));
    let backend = web(ca.issue(&[NAME]).server(Some(&clients)), &[&one, &two]).await;
    let keys = [(); 3].map(|()| key(Transport::Tcp, Some(V4)));
    let security = ca.security(NAME, &[]);
    harness
        .serve(vec![
            showing(keys[0], backend, security.clone(), &one),
            showing(keys[1], backend, security.clone(), &two),
            to(keys[2], backend, security),
        ])
        .await;
    for _ in 0..3 {
        for (key, client) in [(keys[0], "client=Some(0)"), (keys[1], "client=Some(1)")] {
            let answer = get(key, "/").await;
            assert!(answer.starts_with("200 ") && answer.contains(client), "{answer}");
        }
        assert!(get(keys[2], "/").await.starts_with("502 "), "nothing to show");
    }
    assert_ne!(connection(&get(keys[0], "/").await), connection(&get(keys[1], "/").await));
    harness.end().await;
}

#[tokio::test]
async fn new_authorities_hold_for_the_next_request() {
    let mut harness = Harness::within(crate::proxy::limits::Budget::new(10_000, 1));
    let (ca, other) = (Ca::new("backends"), Ca::new("others"));
    let backend = web(ca.issue(&[NAME]).server(None), &[]).await;
    let key = key(Transport::Tcp, Some(V4));
    let mut client = {
        harness.serve(vec![to(key, backend, ca.security(NAME, &[]))]).await;
        connect(at(V4, key)).await
    };
    let first = ask(&mut client, "/").await;
    assert!(first.starts_with("200 "), "{first}");
    // The connection is there, and is another identity's.
    harness.serve(vec![to(key, backend, other.security(NAME, &[]))]).await;
    assert!(ask(&mut client, "/").await.starts_with("502 "));
    // Both for the time of a change of authorities.
    let both = crate::certificate::Authorities::union(&[other.authorities.clone(), ca.authorities.clone()]);
    let names = [].into();
    let (server_name, authorities) = (NAME.into(), both.expect("two"));
    let tls = crate::snapshot::BackendTls { server_name, names, authorities };
    harness.serve(vec![to(key, backend, BackendSecurity::Tls(Arc::new(tls)))]).await;
    let last = ask(&mut client, "/").await;
    assert!(last.starts_with("200 "), "{last}");
    assert_ne!(connection(&last), connection(&first));
    harness.end().await;
}

#[tokio::test]
async fn handshake_that_stalls_is_504() {
    let mut harness = Harness::new();
    let silent = TcpListener::bind((V4, 0)).await.expect("bind");
    let address = silent.local_addr().expect("address");
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![to(key, address, Ca::new("backends").security(NAME, &[]))]).await;
    assert!(get(key, "/").await.starts_with("504 "));
    harness.end().await;
}

// `kubernetes.io/wss`
#[tokio::test]
async fn upgraded_connection_goes_on_by_tls() {
    let mut harness = Harness::new();
    let ca = Ca::new("backends");
    let backend = web(ca.issue(&[NAME]).server(None), &[]).await;
    let key = key(Transport::Tcp, Some(V4));
    harness.serve(vec![to(key, backend, ca.security(NAME, &[]))]).await;
    let mut stream = connect(at(V4, key)).await;
    // O33: the first frame may come with the request.
    let request =
        "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst frame";
    soon(async {
        stream.write_all(request.as_bytes()).await.expect("request");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a whole head"));
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "));
        stream.write_all(b", second").await.expect("frame");
        stream.shutdown().await.expect("end");
        let mut echoed = Vec::new();
        stream.read_to_end(&mut echoed).await.expect("a clean end");
        assert_eq!(echoed, b"first frame, second");
    })
    .await;
    harness.end().await;
}
