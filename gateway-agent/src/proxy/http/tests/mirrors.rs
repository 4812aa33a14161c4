//! Mirrored requests.

use super::*;
use crate::snapshot::{Filters, HeaderChanges, MessageHeaders, Mirror, PathChange, Rewrite};

fn mirror(addresses: &[SocketAddr], numerator: u32, denominator: u32) -> Mirror {
    let set = EndpointSet {
        service: object("mirror"),
        port: 80,
        protocol: BackendProtocol::Http1,
        addresses: addresses.into(),
        security: BackendSecurity::Cleartext,
        proxy_version: None,
    };
    Mirror { endpoints: Arc::new(set), numerator, denominator }
}

fn mirrored(to: &[SocketAddr], mirrors: Vec<Mirror>) -> HttpMatch {
    let mut found = prefix("", forward(to));
    filters(&mut found.rule).mirrors = mirrors.into();
    found
}

pub(super) fn numbers(lab: &Lab) -> (u64, u64) {
    let text = crate::metrics::encode(&lab.metrics, &crate::metrics::Extra::default());
    let number = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("gateway_agent_route_{name}_total")));
        line.and_then(|line| line.rsplit(' ').next()).map_or(0, |number| number.parse().unwrap())
    };
    (number("mirrored"), number("mirrors_dropped"))
}

const GET: &str = "GET /a?b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

#[test]
fn every_mirror_gets_what_the_server_gets() {
    run(async |lab| {
        let (main, main_requests, _) = canned(OK).await;
        let (first, first_requests, _) = canned("HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno").await;
        let (second, second_requests, _) = canned("HTTP/1.1 204 No\r\n\r\n").await;
        let mut found = mirrored(&[main], vec![mirror(&[first], 1, 1), mirror(&[second], 1, 1)]);
        let filters = filters(&mut found.rule);
        filters.headers.request = HeaderChanges::new([], [("x-a", "1")], []).unwrap();
        filters.rewrite = Rewrite { hostname: None, path: Some(PathChange::Full("/new".into())) };
        lab.publish(None, vec![found]);
        for n in 1..=3 {
            let answer = lab.ask(GET).await;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
            until(|| first_requests.borrow().len() == n && second_requests.borrow().len() == n).await;
        }
        assert!(main_requests.borrow()[0].starts_with("GET /new?b HTTP/1.1\r\n"));
        assert!(main_requests.borrow()[0].contains("x-a: 1\r\n"));
        for requests in [first_requests, second_requests] {
            assert_eq!(*requests.borrow(), *main_requests.borrow());
        }
        until(|| numbers(lab) == (6, 0)).await;
    });
}

// O35
#[test]
fn bodies_are_mirrored_whole_up_to_a_bound() {
    run(async |lab| {
        let (main, ..) = canned(OK).await;
        let (first, first_requests, n_connections) = canned(OK).await;
        lab.publish(None, vec![mirrored(&[main], vec![mirror(&[first], 1, 1)])]);
        let post = |body: &str| {
            let length = body.len();
            format!(
                "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            )
        };
        let large = "x".repeat(1024 * 1024);
        for (n, body) in ["0123456789abcdef", &large].into_iter().enumerate() {
            assert!(lab.ask(&post(body)).await.starts_with("HTTP/1.1 200"));
            // Then the connection to the mirror is kept.
            until(|| numbers(lab) == (n as u64 + 1, 0)).await;
            assert!(first_requests.borrow()[n].ends_with(&format!("\r\n\r\n{body}")));
        }
        let too_large = "x".repeat(1024 * 1024 + 1);
        assert!(lab.ask(&post(&too_large)).await.starts_with("HTTP/1.1 200"));
        until(|| numbers(lab) == (2, 1)).await;
        assert_eq!((first_requests.borrow().len(), n_connections.get()), (2, 1));
    });
}

// O35
#[test]
fn mirror_that_refuses_or_never_reads_does_no_harm() {
    run_paused(async |lab| {
        let (main, ..) = canned(OK).await;
        let silent = server(|stream, _| async move {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            drop(stream);
        })
        .await;
        let mirrors = vec![mirror(&[refusing().await], 1, 1), mirror(&[silent], 1, 1), mirror(&[], 1, 1)];
        lab.publish(None, vec![mirrored(&[main], mirrors)]);
        for _ in 0..3 {
            let start = tokio::time::Instant::now();
            assert!(lab.ask(GET).await.starts_with("HTTP/1.1 200"));
            assert!(start.elapsed() < Duration::from_secs(1));
        }
        until(|| numbers(lab) == (0, 9)).await;
        assert_eq!(lab.worker.n_mirrors.get(), 0);
    });
}

#[test]
fn requests_beyond_the_bound_under_way_are_not_mirrored() {
    run_paused(async |lab| {
        let (main, ..) = canned(OK).await;
        let silent = server(|stream, _| async move {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            drop(stream);
        })
        .await;
        let mirrors = (0..16).map(|_| mirror(&[silent], 1, 1)).collect();
        lab.publish(None, vec![mirrored(&[main], mirrors)]);
        for _ in 0..17 {
            assert!(lab.ask(GET).await.starts_with("HTTP/1.1 200"));
        }
        assert_eq!((lab.worker.n_mirrors.get(), numbers(lab).1), (256, 16));
    });
}

#[test]
fn part_of_the_requests_is_mirrored() {
    run(async |lab| {
        let (main, ..) = canned(OK).await;
        let (fifth, fifth_requests, _) = canned(OK).await;
        let (half, half_requests, _) = canned(OK).await;
        let (never, never_requests, _) = canned(OK).await;
        let mirrors = vec![mirror(&[fifth], 20, 100), mirror(&[half], 25, 50), mirror(&[never], 0, 100)];
        lab.publish(None, vec![mirrored(&[main], mirrors)]);
        let mut client = lab.connect().await;
        for _ in 0..500 {
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            expect(&mut client, OK).await;
        }
        until(|| lab.worker.n_mirrors.get() == 0).await;
        let counts = [fifth_requests, half_requests, never_requests].map(|requests| requests.borrow().len());
        // Three standard deviations.
        assert!((74..=126).contains(&counts[0]) && (217..=283).contains(&counts[1]), "{counts:?}");
        assert_eq!(counts[2], 0);
    });
}

#[test]
fn filters_of_a_backend_are_for_its_own_mirrors_only() {
    run(async |lab| {
        let (main, ..) = canned(OK).await;
        let (of_rule, rule_requests, _) = canned(OK).await;
        let (of_backend, backend_requests, _) = canned(OK).await;
        let header = |value: &str| MessageHeaders {
            request: HeaderChanges::new([], [("x-level", value)], []).unwrap(),
            ..MessageHeaders::default()
        };
        let mut backend = endpoints(1, &[main]);
        let mirrors = [mirror(&[of_backend], 1, 1)].into();
        backend.filters =
            Some(Arc::new(Filters { headers: header("backend"), mirrors, ..Filters::default() }));
        let mut found = prefix("", HttpAction::Forward(Split::new(vec![backend])));
        let mirrors = [mirror(&[of_rule], 1, 1)].into();
        *filters(&mut found.rule) = Filters { headers: header("rule"), mirrors, ..Filters::default() };
        lab.publish(None, vec![found]);
        lab.ask(GET).await;
        until(|| rule_requests.borrow().len() == 1 && backend_requests.borrow().len() == 1).await;
        assert!(rule_requests.borrow()[0].contains("x-level: rule\r\n"));
        assert!(backend_requests.borrow()[0].contains("x-level: backend\r\n"));
    });
}
