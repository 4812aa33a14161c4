//! Filters and policies of routes for clients of HTTP/2: as in HTTP/1.

use bytes::Bytes;
use http::Request;

use super::http2::{ask, get, open, post, read};
use super::*;
use crate::snapshot::{Cors, CorsSpec, HeaderChanges, HttpTimeouts, Mirror, PathChange, Retry, Rewrite};

fn filtered(addresses: &[SocketAddr], change: impl FnOnce(&mut Arc<HttpRule>)) -> HttpMatch {
    let mut found = prefix("", forward(addresses));
    change(&mut found.rule);
    found
}

/// Answers the first `n_failures` requests with 503, and keeps all of them.
async fn failing(n_failures: usize) -> (SocketAddr, Rc<RefCell<Vec<String>>>) {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let all: Rc<RefCell<Vec<String>>> = seen.clone();
    let address = server(move |mut stream, _| {
        let seen = seen.clone();
        async move {
            while let Some(request) = read_request(&mut stream).await {
                seen.borrow_mut().push(request);
                let status = if seen.borrow().len() > n_failures { 200 } else { 503 };
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok");
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    })
    .await;
    (address, all)
}

#[test]
fn host_and_path_are_rewritten() {
    run(async |lab| {
        let (address, requests, _) = canned(OK).await;
        let path = PathChange::Prefix { matched: "/old".into(), replacement: "/new".into() };
        let rewrite = Rewrite { hostname: Some("b.example".into()), path: Some(path) };
        lab.publish(None, vec![filtered(&[address], |rule| filters(rule).rewrite = rewrite)]);
        ask(&mut open(lab).await, get("/old/x?q")).await;
        let seen = requests.borrow().concat();
        assert!(seen.starts_with("GET /new/x?q HTTP/1.1\r\nhost: b.example\r\n"), "{seen}");
        assert!(seen.contains("X-Forwarded-Host: a.example\r\n"), "{seen}");
    });
}

#[test]
fn preflight_is_answered_and_answers_say_what_cors_says() {
    run(async |lab| {
        let answer = "HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: 0\r\n\r\n";
        let (address, requests, _) = canned(answer).await;
        let spec = CorsSpec {
            origins: &["https://*.example".to_owned()],
            methods: &["PUT".to_owned()],
            ..CorsSpec::default()
        };
        let cors = Some(Arc::new(Cors::new(spec).unwrap()));
        let found = filtered(&[address], |rule| filters(rule).cors = cors);
        lab.publish(None, vec![found]);
        let mut client = open(lab).await;
        let preflight = |origin: &str| {
            let request = Request::options("http://a.example/").header("origin", origin);
            request.header("access-control-request-method", "PUT").body(()).unwrap()
        };
        let (head, ..) = ask(&mut client, preflight("https://a.example")).await;
        assert_eq!(head.status(), 204);
        assert_eq!(head.headers()["access-control-allow-origin"], "https://a.example");
        assert!(head.headers().get("content-length").is_none());
        assert_eq!(ask(&mut client, preflight("https://evil.test")).await.0.status(), 403);
        assert!(requests.borrow().is_empty());
        let mut request = get("/");
        request.headers_mut().insert("origin", "https://b.example".parse().unwrap());
        let (head, ..) = ask(&mut client, request).await;
        let allowed: Vec<_> = head.headers().get_all("access-control-allow-origin").iter().collect();
        assert_eq!(allowed, ["https://b.example"]);
    });
}

#[test]
fn limits_of_the_route_are_kept() {
    run_paused(async |lab| {
        let address = server(|mut stream, _| async move {
            read_head(&mut stream).await;
            std::future::pending::<()>().await;
        })
        .await;
        let half = Some(Duration::from_millis(500));
        for timeouts in [
            HttpTimeouts { request: half, backend_request: None },
            HttpTimeouts { request: None, backend_request: half },
        ] {
            lab.publish(None, vec![filtered(&[address], |rule| Arc::make_mut(rule).timeouts = timeouts)]);
            let started = tokio::time::Instant::now();
            let (head, ..) = ask(&mut open(lab).await, get("/")).await;
            assert_eq!(head.status(), 504);
            let waited = started.elapsed().as_millis();
            assert!((500..800).contains(&waited), "{waited} ms");
        }
    });
}

#[test]
fn status_is_retried_and_the_body_sent_again() {
    run_paused(async |lab| {
        let mut client = open(lab).await;
        for (n_failures, attempts, status) in [(2, 3, 200), (2, 1, 503), (1, 0, 503)] {
            let (address, requests) = failing(n_failures).await;
            let retry = Retry { attempts, codes: [503].into(), backoff: Duration::from_millis(25) };
            lab.publish(
                None,
                vec![filtered(&[address], |rule| Arc::make_mut(rule).retry = Some(Arc::new(retry)))],
            );
            let large = "x".repeat(100_000);
            let request = post("/").header("content-length", large.len()).body(()).unwrap();
            let (response, mut body) = client.send_request(request, false).unwrap();
            body.send_data(Bytes::from(large.clone()), true).unwrap();
            let (head, text, _) = read(response).await.unwrap();
            assert_eq!((head.status().as_u16(), text.as_str()), (status, "ok"), "{n_failures} {attempts}");
            let requests = requests.borrow();
            assert_eq!(requests.len(), n_failures.min(attempts as usize) + 1);
            assert!(requests.iter().all(|request| request.ends_with(&large)), "a body is not whole");
        }
    });
}

// O35
#[test]
fn mirrors_get_the_whole_request() {
    run(async |lab| {
        let (main, ..) = canned(OK).await;
        let seen = Rc::new(RefCell::new(String::new()));
        let all = seen.clone();
        let mirror = server(move |mut stream, _| {
            let all = all.clone();
            async move {
                while let Ok(byte) = stream.read_u8().await {
                    all.borrow_mut().push(char::from(byte));
                    if all.borrow().ends_with("\r\n\r\n") {
                        stream.write_all(OK.as_bytes()).await.unwrap();
                    }
                }
            }
        })
        .await;
        let action = forward(&[mirror]);
        let HttpAction::Forward(split) = &action else { panic!("not forwarded") };
        let Backend::Endpoints(endpoints) = split.backends[0].backend.clone() else { panic!("invalid") };
        let changes = HeaderChanges::new([], [("x-a", "1")], []).unwrap();
        let found = filtered(&[main], |rule| {
            filters(rule).mirrors = [Mirror { endpoints, numerator: 1, denominator: 1 }].into();
            filters(rule).headers.request = changes;
        });
        lab.publish(None, vec![found]);
        let mut client = open(lab).await;
        let request = post("/m").header("content-length", 5).body(()).unwrap();
        let (response, mut body) = client.send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), true).unwrap();
        assert_eq!(read(response).await.unwrap().1, "ok");
        until(|| seen.borrow().ends_with("\r\n\r\nhello")).await;
        assert!(seen.borrow().contains("x-a: 1\r\n") && seen.borrow().starts_with("POST /m HTTP/1.1\r\n"));
    });
}
