//! Clients that show certificates: `spec.tls.frontend`.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::{ClientConfig, HandshakeKind};

use super::harness::{Harness, HttpsListener, V4, at, https, key, soon, tls_listener_name};
use super::https::{ask, get, shows, try_shake, web};
use super::pki::{Ca, Issued, client};
use crate::metrics::HandshakeFailure;
use crate::snapshot::{ClientTrust, ListenerKey, TlsTerms, Transport};

fn terms(server: &Issued, clients: Option<Arc<ClientTrust>>) -> TlsTerms {
    TlsTerms { certificates: [server.certificate.clone()].into(), clients }
}

fn of<'a>(hostname: Option<&'a str>, terms: TlsTerms, backend: SocketAddr) -> HttpsListener<'a> {
    HttpsListener { hostname, terms, backend }
}

/// The status of an answer. A refusal may arrive only after the client's part of the handshake is done (TLS 1.3).
async fn try_ask(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> Option<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = try_shake(address, name, config).await.ok()?;
    soon(stream.write_all(get("/", name).as_bytes())).await.ok()?;
    soon(stream.flush()).await.ok()?;
    let mut start = [0; 12];
    soon(stream.read_exact(&mut start)).await.ok()?;
    Some(String::from_utf8_lossy(&start).into_owned())
}

async fn is_served(key: ListenerKey, name: &str, config: &Arc<ClientConfig>) -> bool {
    let answer = try_ask(at(V4, key), name, config).await;
    assert!(answer.as_deref().is_none_or(|answer| answer == "HTTP/1.1 200"), "{answer:?}");
    answer.is_some()
}

#[tokio::test]
async fn only_clients_with_a_valid_certificate_come_in() {
    let mut harness = Harness::new();
    let (ca, other) = (Ca::new("clients"), Ca::new("clients"));
    let servers = Ca::new("servers");
    let server = servers.issue(&["a.example.com"]);
    let (key, backend) = (key(Transport::Tcp, Some(V4)), web("web").await);
    harness.serve(vec![https(key, &[of(None, terms(&server, Some(ca.trust(false))), backend)], &[])]).await;
    let good = ca.issue(&["client"]);
    assert!(is_served(key, "a.example.com", &client(&servers, Some(&good))).await);
    let (foreign, expired) = (other.issue(&["client"]), ca.issue_expired(&["client"]));
    for (case, own) in [("none", None), ("foreign", Some(&foreign)), ("expired", Some(&expired))] {
        assert!(!is_served(key, "a.example.com", &client(&servers, own)).await, "{case}");
    }
    let section = tls_listener_name(key, None).section;
    let reason = HandshakeFailure::ClientCertificate.as_str();
    shows(&harness, &format!("listener=\"{section}\",reason=\"{reason}\"}} 3")).await;
    harness.end().await;
}

#[tokio::test]
async fn insecure_fallback_lets_everyone_in_and_counts_them() {
    let mut harness = Harness::new();
    let (ca, other, servers) = (Ca::new("clients"), Ca::new("others"), Ca::new("servers"));
    let server = servers.issue(&["a.example.com"]);
    let (key, backend) = (key(Transport::Tcp, Some(V4)), web("web").await);
    harness.serve(vec![https(key, &[of(None, terms(&server, Some(ca.trust(true))), backend)], &[])]).await;
    let (good, foreign, expired) =
        (ca.issue(&["client"]), other.issue(&["client"]), ca.issue_expired(&["client"]));
    for own in [Some(&good), None, Some(&foreign), Some(&expired)] {
        assert!(is_served(key, "a.example.com", &client(&servers, own)).await);
    }
    let section = tls_listener_name(key, None).section;
    let name = "gateway_agent_listener_tls_unverified_clients_total";
    let labels = format!("namespace=\"default\",gateway=\"gw\",listener=\"{section}\"");
    shows(&harness, &format!("{name}{{{labels}}} 3")).await;
    harness.end().await;
}

// Of several Gateways, each with authorities of its own.
#[tokio::test]
async fn listeners_of_one_port_validate_each_by_its_own_authorities() {
    let mut harness = Harness::new();
    let (one, two, servers) = (Ca::new("one"), Ca::new("two"), Ca::new("servers"));
    let server = servers.issue(&["one.example.com", "two.example.com", "open.example.com"]);
    let (key, backend) = (key(Transport::Tcp, Some(V4)), web("web").await);
    let listeners = [
        of(Some("one.example.com"), terms(&server, Some(one.trust(false))), backend),
        of(Some("two.example.com"), terms(&server, Some(two.trust(false))), backend),
        of(Some("open.example.com"), terms(&server, None), backend),
    ];
    harness.serve(vec![https(key, &listeners, &[])]).await;
    let of_one = client(&servers, Some(&one.issue(&["client"])));
    let of_two = client(&servers, Some(&two.issue(&["client"])));
    for (name, config, expected) in [
        ("one.example.com", &of_one, true),
        ("one.example.com", &of_two, false),
        ("two.example.com", &of_one, false),
        ("two.example.com", &of_two, true),
        ("open.example.com", &of_one, true),
    ] {
        assert_eq!(is_served(key, name, config).await, expected, "{name}");
    }
    // Nor does a connection to one of them lead to another.
    let anonymous = client(&servers, None);
    let mut open = try_shake(at(V4, key), "open.example.com", &anonymous).await.expect("nothing is asked");
    let answer = soon(async {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        open.write_all(get("/", "one.example.com").as_bytes()).await.expect("request");
        open.flush().await.expect("flush");
        let mut start = [0; 12];
        open.read_exact(&mut start).await.expect("an answer");
        String::from_utf8_lossy(&start).into_owned()
    });
    assert_eq!(answer.await, "HTTP/1.1 421");
    harness.end().await;
}

#[tokio::test]
async fn new_authorities_hold_for_new_handshakes_and_no_session_escapes_them() {
    let mut harness = Harness::new();
    let (old, new, servers) = (Ca::new("old"), Ca::new("new"), Ca::new("servers"));
    let server = servers.issue(&["a.example.com"]);
    let (key, backend) = (key(Transport::Tcp, Some(V4)), web("web").await);
    let serve = |ca: &Ca| vec![https(key, &[of(None, terms(&server, Some(ca.trust(false))), backend)], &[])];
    harness.serve(serve(&old)).await;
    let of_old = client(&servers, Some(&old.issue(&["client"])));
    let of_new = client(&servers, Some(&new.issue(&["client"])));
    let mut open = try_shake(at(V4, key), "a.example.com", &of_old).await.expect("valid");
    assert!(ask(&mut open, &get("/", "a.example.com")).await.starts_with("HTTP/1.1 200 "));
    // A client that could resume does not: each connection is validated.
    let mut again = try_shake(at(V4, key), "a.example.com", &of_old).await.expect("valid");
    ask(&mut again, &get("/", "a.example.com")).await;
    assert_eq!(again.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
    assert!(!is_served(key, "a.example.com", &of_new).await);
    harness.serve(serve(&new)).await;
    assert!(ask(&mut open, &get("/", "a.example.com")).await.starts_with("HTTP/1.1 200 "));
    assert!(!is_served(key, "a.example.com", &of_old).await);
    assert!(is_served(key, "a.example.com", &of_new).await);
    shows(&harness, HandshakeFailure::ClientCertificate.as_str()).await;
    harness.end().await;
}
