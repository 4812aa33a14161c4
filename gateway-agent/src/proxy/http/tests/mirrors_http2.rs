//! Mirrors that speak HTTP/2, behind clients and beside servers of either version.

use bytes::Bytes;
use http::Response;

use super::http2::{Answer, open, post, read, read_body};
use super::http2_servers::{call, h2c, set};
use super::mirrors::numbers;
use super::*;
use crate::snapshot::{HeaderChanges, Mirror};

type Seen = Rc<RefCell<Vec<String>>>;

/// A server of HTTP/2 that keeps what it was asked: target, fields and body, as text.
async fn recorded() -> (SocketAddr, Seen) {
    let seen = Seen::default();
    let all = seen.clone();
    let (address, _) = h2c(
        |_| {},
        move |(request, mut respond), _| {
            let all = all.clone();
            async move {
                let (head, body) = request.into_parts();
                let mut text = format!("{} {}\n", head.method, head.uri);
                for (name, value) in &head.headers {
                    text.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
                }
                let Ok((body, _)) = read_body(body).await else { return };
                all.borrow_mut().push(text + &body);
                let mut answer = respond.send_response(Response::new(()), false).unwrap();
                answer.send_data(Bytes::from_static(b"ok"), true).unwrap();
            }
        },
    )
    .await;
    (address, seen)
}

/// To `main`, with one mirror and a field that is added.
fn mirrored(main: HttpAction, mirror: HttpAction) -> HttpMatch {
    let HttpAction::Forward(split) = &mirror else { panic!("not forwarded") };
    let Backend::Endpoints(endpoints) = split.backends[0].backend.clone() else { panic!("invalid") };
    let mut found = prefix("", main);
    let filters = filters(&mut found.rule);
    filters.mirrors = [Mirror { endpoints, numerator: 1, denominator: 1 }].into();
    filters.headers.request = HeaderChanges::new([], [("x-a", "1")], []).unwrap();
    found
}

// O35
#[test]
fn requests_of_http_1_to_http_1_are_mirrored_by_http_2() {
    run(async |lab| {
        let (main, main_requests, _) = canned(OK).await;
        let (mirror, seen) = recorded().await;
        lab.publish(None, vec![mirrored(forward(&[main]), set(&[mirror]))]);
        let mut n = 0;
        for (head, body, begin) in [
            ("GET /a?b HTTP/1.1\r\n", "", "GET http://h/a?b\n"),
            ("POST /s HTTP/1.1\r\nContent-Length: 5\r\n", "hello", "POST http://h/s\ncontent-length: 5\n"),
        ] {
            let answer = lab.ask(&format!("{head}Host: h\r\nConnection: close\r\n\r\n{body}")).await;
            assert!(answer.ends_with("ok"), "{answer}");
            n += 1;
            until(|| seen.borrow().len() == n).await;
            let copy = seen.borrow()[n - 1].clone();
            assert!(copy.starts_with(begin) && copy.ends_with(&format!("\n{body}")), "{copy}");
            for field in ["x-forwarded-for: 127.0.0.1\n", "x-forwarded-host: h\n", "x-a: 1\n"] {
                assert!(copy.contains(field), "{copy}");
            }
            // What belongs to the connection to the server that answers does not get here.
            assert!(!copy.contains("connection") && !copy.contains("\nhost:"), "{copy}");
        }
        until(|| numbers(lab) == (2, 0)).await;
        assert_eq!(main_requests.borrow().len(), 2);
    });
}

// O35: what frames a body in HTTP/1 is none of it.
#[test]
fn chunked_body_is_mirrored_without_its_chunks() {
    run(async |lab| {
        let main = server(|mut stream, _| async move {
            let mut all = String::new();
            while !all.ends_with("0\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { return };
                all.push(char::from(byte));
            }
            stream.write_all(OK.as_bytes()).await.unwrap();
        })
        .await;
        let (mirror, seen) = recorded().await;
        lab.publish(None, vec![mirrored(forward(&[main]), set(&[mirror]))]);
        let request = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
            3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert!(lab.ask(request).await.ends_with("ok"));
        until(|| seen.borrow().len() == 1).await;
        assert!(seen.borrow()[0].ends_with("\nabcde"), "{:?}", seen.borrow());
        until(|| numbers(lab) == (1, 0)).await;
    });
}

// O35
#[test]
fn calls_are_mirrored_as_calls_however_large_they_are() {
    run(async |lab| {
        let (main, main_seen) = recorded().await;
        let (mirror, seen) = recorded().await;
        lab.publish(None, vec![mirrored(set(&[main]), set(&[mirror]))]);
        let mut client = open(lab).await;
        // Beyond the windows of a stream and of its connection.
        for (n, size) in [0, 5, 900_000].into_iter().enumerate() {
            let (response, mut body) = client.send_request(call("/a.B/M?q"), false).unwrap();
            body.send_data(Bytes::from("x".repeat(size)), true).unwrap();
            let (_, text, _): Answer = read(response).await.unwrap();
            assert_eq!(text, "ok");
            until(|| seen.borrow().len() == n + 1).await;
            assert_eq!(seen.borrow()[n], main_seen.borrow()[n]);
            assert!(seen.borrow()[n].contains("te: trailers\n"), "{}", seen.borrow()[n].len());
        }
        until(|| numbers(lab) == (3, 0)).await;
        // More is not kept.
        let (response, mut body) = client.send_request(call("/a.B/M"), false).unwrap();
        body.send_data(Bytes::from("x".repeat(1024 * 1024 + 1)), true).unwrap();
        assert_eq!(read(response).await.unwrap().1, "ok");
        until(|| numbers(lab) == (3, 1)).await;
        assert_eq!(seen.borrow().len(), 3);
    });
}

#[test]
fn mirror_is_spoken_to_in_its_own_version_beside_a_server_of_another() {
    run(async |lab| {
        let (main, _) = recorded().await;
        let (mirror, requests, _) = canned(OK).await;
        lab.publish(None, vec![mirrored(set(&[main]), forward(&[mirror]))]);
        let mut client = open(lab).await;
        let request = post("/m").header("content-length", 5).body(()).unwrap();
        let (response, mut body) = client.send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), true).unwrap();
        assert_eq!(read(response).await.unwrap().1, "ok");
        until(|| requests.borrow().len() == 1).await;
        let seen = requests.borrow()[0].clone();
        assert!(seen.starts_with("POST /m HTTP/1.1\r\nhost: a.example\r\n"), "{seen}");
        assert!(seen.ends_with("\r\n\r\nhello"), "{seen}");
    });
}

// O35
#[test]
fn mirror_of_http_2_that_refuses_or_never_answers_does_no_harm() {
    run_paused(async |lab| {
        let (main, ..) = canned(OK).await;
        let silent = server(|stream, _| async move {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            drop(stream);
        })
        .await;
        let (resetting, _) = h2c(
            |_| {},
            |(_, mut respond), _| async move { respond.send_reset(::h2::Reason::INTERNAL_ERROR) },
        )
        .await;
        for (n, mirror) in [refusing().await, silent, resetting].into_iter().enumerate() {
            lab.publish(None, vec![mirrored(forward(&[main]), set(&[mirror]))]);
            let start = tokio::time::Instant::now();
            let answer = lab.ask("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(start.elapsed() < Duration::from_secs(1));
            until(|| numbers(lab) == (0, n as u64 + 1)).await;
        }
        assert_eq!(lab.worker.n_mirrors.get(), 0);
    });
}
