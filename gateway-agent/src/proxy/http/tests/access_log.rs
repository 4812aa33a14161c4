//! What the access log says: one line for each request, however it ends.

use std::path::PathBuf;

use ::h2::Reason;
use bytes::Bytes;
use http::Response;
use http::header::{HeaderMap, HeaderValue};
use serde_json::Value;

use super::http2::{ask, get, open, post};
use super::http2_servers::{call, h2c, route_to};
use super::*;
use crate::access_log::Target;

struct Lines(PathBuf);

impl Lines {
    /// The lines, once there are `n`; no more come.
    async fn all(&self, n: usize) -> Vec<Value> {
        let text = || std::fs::read_to_string(&self.0).unwrap();
        until(|| text().matches('\n').count() >= n).await;
        let lines: Vec<Value> = text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), n, "{lines:#?}");
        lines
    }
}

fn logged(is_paused: bool, test: impl AsyncFnOnce(&Lab, &Lines)) {
    let folder = tempfile::tempdir().unwrap();
    let lines = Lines(folder.path().join("access.log"));
    let (log, writer) = AccessLog::start(Target::File(lines.0.clone()), Arc::default()).unwrap();
    run_with(is_paused, async |_| test(&Lab::logging(&log).await, &lines).await);
    writer.finish();
}

/// Some members of a line; those that are absent are null.
fn some(line: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| line[name].clone()).collect()
}

const OUTCOME: [&str; 4] = ["http.status", "error", "error.source", "upstream.addr"];

#[test]
fn a_line_says_what_was_asked_where_it_went_and_what_came_of_it() {
    logged(false, async |lab, lines| {
        let (address, requests, _) = canned(OK).await;
        lab.route_to(&[address]);
        let request = "POST /a/%62/../c?secret=1 HTTP/1.1\r\nHost: Shop.example:80\r\nConnection: close\r\n\
                       Authorization: Basic c2VjcmV0\r\nContent-Length: 3\r\n\r\nabc";
        let answer = lab.ask(request).await;
        let lines = lines.all(1).await;
        let line = &lines[0];
        let expected = serde_json::json!({
            "time": line["time"], "src.addr": "127.0.0.1", "dst.addr": lab.address.to_string(),
            "http.scheme": "http", "http.version": "1.1", "http.method": "POST", "http.host": "shop.example",
            "http.path": "/a/c", "request_id": line["request_id"], "listener": "default/gateway/http",
            "route.kind": "HTTPRoute", "route.namespace": "default", "route.name": "route", "route.rule": "0",
            "http.status": 200, "bytes_recv": request.len(), "bytes_sent": answer.len(),
            "duration_ms": line["duration_ms"], "upstream.addr": address.to_string(),
        });
        assert_eq!(*line, expected);
        line["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert_eq!(line["time"].as_str().unwrap().len(), "2026-01-02T03:04:05.678Z".len());
        assert!(line["duration_ms"].as_f64().unwrap() > 0.0);
        let id = line["request_id"].as_str().unwrap();
        assert!(requests.borrow()[0].contains(&format!("\r\nX-Request-Id: {id}\r\n")));
    });
}

#[test]
fn what_the_proxy_answers_itself_says_why() {
    logged(false, async |lab, lines| {
        let refused = refusing().await;
        let invalid = HttpAction::Forward(Split::new(vec![WeightedBackend::new(1, Backend::Invalid)]));
        lab.publish(
            Some("a"),
            vec![
                prefix("/empty", forward(&[])),
                prefix("/invalid", invalid),
                prefix("/refused", forward(&[refused])),
                prefix("/rule", HttpAction::Respond(500)),
            ],
        );
        let mut cases = Vec::new();
        for (host, path, status, error, source) in [
            ("a", "/empty", 503, "no-endpoint", "internal"),
            ("a", "/invalid", 500, "invalid-backend", "internal"),
            ("a", "/refused", 502, "connect", "upstream"),
            ("a", "/rule", 500, "unservable-rule", "internal"),
            ("a", "/", 404, "no-route", "internal"),
            ("b", "/", 404, "no-route", "internal"),
        ] {
            lab.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
            let upstream = (path == "/refused").then(|| refused.to_string());
            cases.push(serde_json::json!([status, error, source, upstream, host, path]));
        }
        let bad = "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n";
        lab.ask(bad).await;
        let lines = lines.all(cases.len() + 1).await;
        let names: Vec<&str> = OUTCOME.into_iter().chain(["http.host", "http.path"]).collect();
        for (line, expected) in lines.iter().zip(&cases) {
            assert_eq!(some(line, &names), *expected);
        }
        let unread = lines.last().unwrap();
        assert_eq!(some(unread, &OUTCOME), serde_json::json!([400, "head", "downstream", null]));
        assert!(
            unread["error.detail"].as_str().is_some_and(|detail| detail.starts_with("head: ")),
            "{unread}"
        );
        assert_eq!(unread["http.path"], Value::Null);
    });
}

// O30
#[test]
fn a_client_that_goes_away_is_no_success() {
    logged(false, async |lab, lines| {
        let started = Rc::new(Cell::new(0));
        let seen = started.clone();
        let address = server(move |mut stream, _| {
            let seen = seen.clone();
            async move {
                let head = read_head(&mut stream).await.unwrap();
                if head.starts_with("GET /long") {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfirst").await.unwrap();
                }
                seen.set(seen.get() + 1);
                read_to_end(&mut stream).await;
            }
        })
        .await;
        lab.route_to(&[address]);
        // Before the head is whole, before there is an answer, and before its end.
        let mut client = lab.connect().await;
        client.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
        drop(client);
        lines.all(1).await;
        let mut n_lines = 1;
        for path in ["/none", "/long"] {
            let mut client = lab.connect().await;
            client.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
            until(|| started.get() == n_lines).await;
            if path == "/long" {
                let mut head = [0; 43];
                client.read_exact(&mut head).await.unwrap();
            }
            socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
            drop(client);
            n_lines += 1;
            lines.all(n_lines).await;
        }
        let lines = lines.all(3).await;
        let upstream = address.to_string();
        assert_eq!(some(&lines[0], &OUTCOME), serde_json::json!([null, "closed", "downstream", null]));
        assert_eq!(some(&lines[1], &OUTCOME), serde_json::json!([null, "closed", "downstream", upstream]));
        assert_eq!(some(&lines[2], &OUTCOME), serde_json::json!([200, "closed", "downstream", upstream]));
    });
}

#[test]
fn a_head_that_takes_too_long_is_logged_and_an_idle_connection_is_not() {
    logged(true, async |lab, lines| {
        let mut idle = lab.connect().await;
        let mut slow = lab.connect().await;
        slow.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        assert!(read_to_end(&mut slow).await.starts_with("HTTP/1.1 408 "));
        assert_eq!(read_to_end(&mut idle).await, "");
        let lines = lines.all(1).await;
        assert_eq!(some(&lines[0], &OUTCOME), serde_json::json!([408, "head-timeout", "downstream", null]));
        assert!(lines[0]["duration_ms"].as_f64().unwrap() >= 10_000.0, "{}", lines[0]);
    });
}

#[test]
fn an_upgraded_connection_is_logged_at_its_end_with_all_that_it_carried() {
    logged(false, async |lab, lines| {
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
        let address = server(move |mut stream, _| async move {
            read_head(&mut stream).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            let (mut reader, mut writer) = stream.split();
            tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        })
        .await;
        lab.route_to(&[address]);
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
        let mut client = lab.connect().await;
        client.write_all(request.as_bytes()).await.unwrap();
        expect(&mut client, answer).await;
        client.write_all(b"hello").await.unwrap();
        expect(&mut client, "hello").await;
        client.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut client).await, "");
        let lines = lines.all(1).await;
        let names = ["http.status", "bytes_recv", "bytes_sent", "error"];
        let expected = serde_json::json!([101, request.len() + 5, answer.len() + 5, null]);
        assert_eq!(some(&lines[0], &names), expected);
    });
}

#[test]
fn retries_are_counted_and_the_last_server_named() {
    logged(false, async |lab, lines| {
        let address = server(|mut stream, n| async move {
            // A connection that is closed before an answer: asked once more.
            read_head(&mut stream).await.unwrap();
            if n > 0 {
                stream.write_all(OK.as_bytes()).await.unwrap();
            }
        })
        .await;
        lab.route_to(&[address]);
        lab.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        let lines = lines.all(1).await;
        assert_eq!(lines[0]["retries"], 1);
        assert_eq!(some(&lines[0], &OUTCOME), serde_json::json!([200, null, null, address.to_string()]));
    });
}

#[test]
fn streams_are_logged_with_the_status_of_their_calls() {
    logged(false, async |lab, lines| {
        let (address, _) = h2c(
            |_| {},
            |(_, mut respond), _| async move {
                let mut answer = respond.send_response(Response::new(()), false).unwrap();
                answer.send_data(Bytes::from_static(b"hello"), false).unwrap();
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from_static("7"));
                answer.send_trailers(trailers).unwrap();
            },
        )
        .await;
        route_to(lab, &[address]);
        let mut client = open(lab).await;
        ask(&mut client, get("/web?a")).await;
        ask(&mut client, call("/a.B/M")).await;
        lab.publish(Some("none.example"), vec![]);
        ask(&mut client, call("/a.B/M")).await;
        ask(&mut client, post("/x").body(()).unwrap()).await;
        let lines = lines.all(4).await;
        let names = ["http.version", "http.method", "http.path", "http.status", "grpc.status", "error"];
        for (line, expected) in lines.iter().zip([
            serde_json::json!(["2", "GET", "/web", 200, null, null]),
            serde_json::json!(["2", "POST", "/a.B/M", 200, 7, null]),
            serde_json::json!(["2", "POST", "/a.B/M", 200, 12, "no-route"]),
            serde_json::json!(["2", "POST", "/x", 404, null, "no-route"]),
        ]) {
            assert_eq!(some(line, &names), expected);
        }
        assert_eq!(lines[0]["upstream.addr"], address.to_string());
        assert_eq!((&lines[0]["http.host"], &lines[0]["bytes_sent"]), (&"a.example".into(), &22.into()));
    });
}

// O30
#[test]
fn a_stream_that_is_reset_or_lost_with_its_connection_is_no_success() {
    logged(false, async |lab, lines| {
        let n_asked = Rc::new(Cell::new(0));
        let count = n_asked.clone();
        let (address, _) = h2c(
            |_| {},
            move |(_, mut respond), _| {
                let count = count.clone();
                async move {
                    let _answer = respond.send_response(Response::new(()), false).unwrap();
                    count.set(count.get() + 1);
                    std::future::pending::<()>().await;
                }
            },
        )
        .await;
        route_to(lab, &[address]);
        let mut client = open(lab).await;
        let (response, mut body) = client.send_request(get("/reset"), false).unwrap();
        let answer = response.await.unwrap();
        body.send_reset(Reason::CANCEL);
        lines.all(1).await;
        drop(answer);
        // Its connection is dropped with it.
        let stream = lab.connect().await;
        let (mut client, connection) =
            ::h2::client::Builder::new().handshake::<_, Bytes>(stream).await.unwrap();
        let driver = tokio::task::spawn_local(async move { drop(connection.await) });
        let (response, _body) = client.send_request(get("/lost"), false).unwrap();
        let _answer = response.await.unwrap();
        assert_eq!(n_asked.get(), 2);
        driver.abort();
        let lines = lines.all(2).await;
        for (line, path) in lines.iter().zip(["/reset", "/lost"]) {
            assert_eq!(line["http.path"], path);
            assert_eq!(some(line, &OUTCOME[1..3]), serde_json::json!(["closed", "downstream"]), "{line}");
        }
    });
}

#[test]
fn requests_that_are_cut_at_the_end_are_logged() {
    logged(false, async |lab, lines| {
        let address = server(|mut stream, _| async move {
            read_head(&mut stream).await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut other = open(lab).await;
        let (response, _) = other.send_request(get("/"), true).unwrap();
        until(|| lab.worker.pool.borrow().load(&address) == 2).await;
        lab.drain.abort();
        drop(response.await);
        let lines = lines.all(2).await;
        for line in &lines {
            let expected = serde_json::json!([null, "aborted", "internal", address.to_string()]);
            assert_eq!(some(line, &OUTCOME), expected);
        }
    });
}
