//! Servers that speak HTTP/2, before clients of either version.

use std::future::poll_fn;

use ::h2::server::{Builder, SendResponse, handshake};
use ::h2::{Reason, RecvStream};
use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response};

use super::http2::{Answer, ask, get, open, post, read};
use super::*;
use crate::snapshot::HeaderMatch;

type Call = (Request<RecvStream>, SendResponse<Bytes>);

/// A server of HTTP/2 in clear, each of whose requests runs `script` with its number. Gives its address and the number of
/// its connections.
pub(super) async fn h2c<F: Future<Output = ()> + 'static>(
    build: impl Fn(&mut Builder) + 'static,
    script: impl Fn(Call, usize) -> F + 'static,
) -> (SocketAddr, Rc<Cell<usize>>) {
    let n_connections = Rc::new(Cell::new(0));
    let (count, script) = (n_connections.clone(), Rc::new((script, Cell::new(0))));
    let build = Rc::new(build);
    let address = server(move |stream, _| {
        count.set(count.get() + 1);
        let (script, build) = (script.clone(), build.clone());
        async move {
            let mut builder = Builder::new();
            build(&mut builder);
            let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else { return };
            while let Some(Ok(call)) = connection.accept().await {
                let n = script.1.get();
                script.1.set(n + 1);
                tokio::task::spawn_local((script.0)(call, n));
            }
        }
    })
    .await;
    (address, n_connections)
}

/// One that answers with what it was asked: target, fields (but the request's id), body and trailers, as text.
pub(super) async fn mirror() -> (SocketAddr, Rc<Cell<usize>>) {
    h2c(
        |_| {},
        |(request, mut respond), _| async move {
            let (head, body) = request.into_parts();
            let mut text = format!("{} {}\n", head.method, head.uri);
            for (name, value) in head.headers.iter().filter(|(name, _)| *name != "x-request-id") {
                text.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
            }
            let Ok((body, trailers)) = http2::read_body(body).await else { return };
            text.push_str(&body);
            for (name, value) in trailers.iter().flatten() {
                text.push_str(&format!("\n{name}= {}", value.to_str().unwrap()));
            }
            let mut answer = respond.send_response(Response::new(()), false).unwrap();
            answer.send_data(Bytes::from(text), false).unwrap();
            let mut trailers = HeaderMap::new();
            trailers.insert("x-end", HeaderValue::from_static("1"));
            answer.send_trailers(trailers).unwrap();
        },
    )
    .await
}

pub(super) fn set(addresses: &[SocketAddr]) -> HttpAction {
    let (service, protocol) = (object("service"), BackendProtocol::Http2);
    let security = BackendSecurity::Cleartext;
    let (addresses, proxy_version) = (addresses.into(), None);
    let set = EndpointSet { service, port: 80, protocol, addresses, security, proxy_version };
    HttpAction::Forward(Split::new(vec![WeightedBackend::new(1, Backend::Endpoints(Arc::new(set)))]))
}

pub(super) fn route_to(lab: &Lab, addresses: &[SocketAddr]) {
    lab.publish(None, vec![prefix("", set(addresses))]);
}

/// A call of gRPC.
pub(super) fn call(path: &str) -> Request<()> {
    post(path).header("content-type", "application/grpc").header("te", "trailers").body(()).unwrap()
}

/// `grpc-status` of an answer that is nothing but trailers, by the rules of the protocol.
fn trailers_only(answer: &Answer) -> &str {
    let (head, body, trailers) = answer;
    assert_eq!((head.status().as_u16(), body.as_str(), trailers.is_none()), (200, "", true), "{answer:?}");
    assert_eq!(head.headers()["content-type"], "application/grpc");
    head.headers()["grpc-status"].to_str().unwrap()
}

// O31
#[test]
fn request_passes_from_h2_to_h2_with_all_that_is_end_to_end() {
    run(async |lab| {
        let (address, n_connections) = mirror().await;
        route_to(lab, &[address]);
        let mut client = open(lab).await;
        let (response, mut body) = client.send_request(call("/a.B/../a.B/M?q"), false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-up", HeaderValue::from_static("2"));
        body.send_trailers(trailers).unwrap();
        let (_, text, trailers) = read(response).await.unwrap();
        let expected = "POST http://a.example/a.B/M?q\ncontent-type: application/grpc\n\
            x-forwarded-for: 127.0.0.1\nx-forwarded-proto: http\nx-forwarded-host: a.example\n\
            x-forwarded-port: 80\nte: trailers\n\
            hello\nx-up= 2";
        assert_eq!(text, expected);
        assert_eq!(trailers.unwrap()["x-end"], "1");
        for _ in 0..20 {
            ask(&mut client, get("/")).await;
        }
        assert_eq!(n_connections.get(), 1);
    });
}

#[test]
fn many_requests_at_once_share_a_connection_also_while_it_is_opened() {
    run(async |lab| {
        let (address, n_connections) = mirror().await;
        route_to(lab, &[address]);
        let mut client = open(lab).await;
        let all: Vec<_> = (0..90).map(|_| client.send_request(get("/"), true).unwrap().0).collect();
        for response in all {
            assert_eq!(read(response).await.unwrap().0.status(), 200);
        }
        assert_eq!((n_connections.get(), lab.worker.links.count()), (1, 1));
    });
}

#[test]
fn connections_are_opened_as_the_server_bounds_their_streams() {
    run(async |lab| {
        let go = Rc::new(Cell::new(false));
        let gate = go.clone();
        let (address, n_connections) = h2c(
            |builder| {
                builder.max_concurrent_streams(10);
            },
            move |(_, mut respond), _| {
                let gate = gate.clone();
                async move {
                    until(|| gate.get()).await;
                    respond.send_response(Response::new(()), true).ok();
                }
            },
        )
        .await;
        route_to(lab, &[address]);
        let mut client = open(lab).await;
        // The first learns the server's bound.
        let first = client.send_request(get("/"), true).unwrap().0;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let all: Vec<_> = (0..39).map(|_| client.send_request(get("/"), true).unwrap().0).collect();
        until(|| n_connections.get() == 4).await;
        go.set(true);
        for response in all.into_iter().chain([first]) {
            assert_eq!(read(response).await.unwrap().0.status(), 200);
        }
        assert_eq!(n_connections.get(), 4);
    });
}

// O27, O39
#[test]
fn connection_that_is_told_to_go_is_replaced_and_nothing_is_lost() {
    run(async |lab| {
        // Every connection serves one request and goes.
        let address = server(|stream, _| async move {
            let mut connection = handshake(stream).await.unwrap();
            let (_, mut respond) = connection.accept().await.unwrap().unwrap();
            connection.graceful_shutdown();
            respond.send_response(Response::new(()), true).unwrap();
            while connection.accept().await.is_some() {}
        })
        .await;
        route_to(lab, &[address]);
        let mut client = open(lab).await;
        for n in 0..50 {
            let (head, ..) = ask(&mut client, post("/").body(()).unwrap()).await;
            assert_eq!(head.status(), 200, "{n}");
        }
    });
}

#[test]
fn request_that_was_refused_goes_to_another_endpoint_with_its_body() {
    run(async |lab| {
        let (refusing, _) = h2c(
            |_| {},
            |(_, mut respond), _| async move {
                respond.send_reset(Reason::REFUSED_STREAM);
            },
        )
        .await;
        let (good, _) = mirror().await;
        route_to(lab, &[refusing, good]);
        let mut client = open(lab).await;
        for _ in 0..20 {
            let (head, text, _) = ask(&mut client, post("/").body(()).unwrap()).await;
            assert_eq!(head.status(), 200, "{text}");
        }
        route_to(lab, &[refusing]);
        assert_eq!(ask(&mut client, get("/")).await.0.status(), 503);
        assert_eq!(trailers_only(&ask(&mut client, call("/a/b")).await), "14");
    });
}

#[test]
fn dead_server_is_502_and_the_next_one_that_lives_is_found() {
    run(async |lab| {
        let (good, _) = mirror().await;
        route_to(lab, &[refusing().await, good]);
        let mut client = open(lab).await;
        for _ in 0..10 {
            assert_eq!(ask(&mut client, get("/")).await.0.status(), 200);
        }
        route_to(lab, &[refusing().await]);
        assert_eq!(ask(&mut client, get("/")).await.0.status(), 502);
        // One that speaks HTTP/1 only.
        let (address, ..) = canned("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
        route_to(lab, &[address]);
        assert_eq!(ask(&mut client, post("/").body(()).unwrap()).await.0.status(), 502);
    });
}

#[test]
fn request_of_h1_reaches_a_server_of_h2() {
    run(async |lab| {
        let (address, _) = mirror().await;
        route_to(lab, &[address]);
        let mut client = lab.connect().await;
        for _ in 0..3 {
            client
                .write_all(
                    b"POST /a?b HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n\
                      5\r\nhello\r\n0\r\nX-Up: 2\r\n\r\n",
                )
                .await
                .unwrap();
            let body = "POST http://a/a?b\nx-a: 1\nx-forwarded-for: 127.0.0.1\nx-forwarded-proto: http\n\
                x-forwarded-host: a\nx-forwarded-port: 80\nhello\nx-up= 2";
            let length = body.len();
            expect(
                &mut client,
                &format!(
                    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{length:X}\r\n{body}\r\n\
                     0\r\nx-end: 1\r\n\r\n"
                ),
            )
            .await;
        }
        // HTTP/1.0 knows no chunks and no trailers.
        let answer = lab.ask("GET / HTTP/1.0\r\nHost: a\r\n\r\n").await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nGET http://a/\n"),
            "{answer}"
        );
    });
}

#[test]
fn answers_for_h1_have_the_framing_that_their_kind_asks_for() {
    run(async |lab| {
        let (address, _) = h2c(
            |_| {},
            |(request, mut respond), _| async move {
                let mut response = Response::new(());
                let has_ended = match request.uri().path() {
                    "/204" => {
                        *response.status_mut() = 204.try_into().unwrap();
                        true
                    }
                    "/long" => {
                        response.headers_mut().insert("content-length", 5.into());
                        request.method() == "HEAD"
                    }
                    "/empty" => true,
                    _ => {
                        let mut early = Response::new(());
                        *early.status_mut() = 103.try_into().unwrap();
                        early.headers_mut().insert("link", HeaderValue::from_static("</a>"));
                        respond.send_informational(early).unwrap();
                        false
                    }
                };
                let mut body = respond.send_response(response, has_ended).unwrap();
                if !has_ended {
                    body.send_data(Bytes::from_static(b"hello"), true).unwrap();
                }
            },
        )
        .await;
        route_to(lab, &[address]);
        let mut client = lab.connect().await;
        for (request, answer) in [
            ("GET /204", "HTTP/1.1 204 No Content\r\n\r\n"),
            ("GET /empty", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
            ("GET /long", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
            ("HEAD /long", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"),
            (
                "GET /early",
                "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
                 HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ),
        ] {
            client.write_all(format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
            expect(&mut client, answer).await;
        }
    });
}

// O29
#[test]
fn errors_of_the_proxy_are_errors_of_grpc_to_clients_of_grpc() {
    run(async |lab| {
        let mut client = open(lab).await;
        lab.publish(Some("other.example"), vec![]);
        assert_eq!(trailers_only(&ask(&mut client, call("/a/b")).await), "12");
        let invalid = HttpAction::Forward(Split::new(vec![WeightedBackend::new(1, Backend::Invalid)]));
        for (action, code) in [
            (set(&[]), "14"),
            (set(&[refusing().await]), "14"),
            (invalid, "14"),
            (HttpAction::Respond(500), "14"),
        ] {
            lab.publish(None, vec![prefix("", action)]);
            assert_eq!(trailers_only(&ask(&mut client, call("/a/b")).await), code);
        }
        // Other clients get the errors of HTTP.
        assert_eq!(ask(&mut client, get("/")).await.0.status(), 500);
    });
}

// O29
#[test]
fn call_whose_server_dies_ends_by_its_status() {
    run(async |lab| {
        let (address, _) = h2c(
            |_| {},
            |(_, mut respond), _| async move {
                let mut head = Response::new(());
                head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
                let mut body = respond.send_response(head, false).unwrap();
                body.send_data(Bytes::from_static(b"half"), false).unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                body.send_reset(Reason::INTERNAL_ERROR);
            },
        )
        .await;
        route_to(lab, &[address]);
        let mut client = open(lab).await;
        let (_, text, trailers) = ask(&mut client, call("/a/b")).await;
        assert_eq!(text, "half");
        assert_eq!(trailers.unwrap()["grpc-status"], "14");
        // Any other client must not take it for whole.
        let (response, _) = client.send_request(get("/"), true).unwrap();
        assert!(read(response).await.is_err());
    });
}

#[test]
fn deadline_of_a_call_is_kept() {
    run_paused(async |lab| {
        let (address, _) = h2c(
            |_| {},
            |(request, mut respond), _| async move {
                if request.uri().path() == "/a/silent" {
                    return std::future::pending().await;
                }
                let _body = respond.send_response(Response::new(()), false).unwrap();
                std::future::pending().await
            },
        )
        .await;
        route_to(lab, &[address]);
        let mut client = open(lab).await;
        for path in ["/a/silent", "/a/halting"] {
            let mut request = call(path);
            request.headers_mut().insert("grpc-timeout", HeaderValue::from_static("2S"));
            let started = tokio::time::Instant::now();
            let (head, _, trailers) = ask(&mut client, request).await;
            let status = trailers.unwrap_or_else(|| head.headers().clone());
            assert_eq!(status["grpc-status"], "4", "{path}");
            let waited = started.elapsed();
            assert!((2000..2500).contains(&waited.as_millis()), "{path}: {waited:?}");
        }
    });
}

// O30
#[test]
fn slow_client_of_grpc_gets_its_trailers_last() {
    run(async |lab| {
        let (address, _) = h2c(
            |_| {},
            |(_, mut respond), _| async move {
                let mut body = respond.send_response(Response::new(()), false).unwrap();
                let mut rest = Bytes::from(vec![b'x'; 4_000_000]);
                while !rest.is_empty() {
                    body.reserve_capacity(rest.len());
                    let room = poll_fn(|cx| body.poll_capacity(cx)).await.unwrap().unwrap();
                    body.send_data(rest.split_to(room.min(rest.len())), false).unwrap();
                }
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                body.send_trailers(trailers).unwrap();
            },
        )
        .await;
        route_to(lab, &[address]);
        let mut client = open(lab).await;
        // The request has not ended when the answer has.
        let (response, _body) = client.send_request(call("/a/b"), false).unwrap();
        let (_, text, trailers) = read(response).await.unwrap();
        assert_eq!(text.len(), 4_000_000);
        assert_eq!(trailers.unwrap()["grpc-status"], "0");
    });
}

#[test]
fn client_that_does_not_read_holds_the_server_up() {
    run(async |lab| {
        let n_sent = Rc::new(Cell::new(0));
        let sent = n_sent.clone();
        let (address, _) = h2c(
            |_| {},
            move |(_, mut respond), _| {
                let sent = sent.clone();
                async move {
                    let mut body = respond.send_response(Response::new(()), false).unwrap();
                    loop {
                        body.reserve_capacity(16 * 1024);
                        let Some(Ok(room)) = poll_fn(|cx| body.poll_capacity(cx)).await else { return };
                        body.send_data(Bytes::from(vec![0; room]), false).unwrap();
                        sent.set(sent.get() + room);
                    }
                }
            },
        )
        .await;
        route_to(lab, &[address]);
        let mut client = open(lab).await;
        let (response, _) = client.send_request(get("/"), true).unwrap();
        let _unread = response.await.unwrap();
        let mut before = usize::MAX;
        while before != n_sent.get() {
            before = n_sent.get();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        // Two windows, and what is between them.
        assert!(n_sent.get() < 4 * 1024 * 1024, "{}", n_sent.get());
        // Others are served; on that client's connection there is no room left.
        let (good, _) = mirror().await;
        route_to(lab, &[good]);
        assert_eq!(ask(&mut open(lab).await, get("/")).await.0.status(), 200);
    });
}

#[test]
fn calls_go_by_the_rules_of_grpcroutes_and_others_do_not() {
    run(async |lab| {
        let name = |n: u16| {
            let fields = [(HeaderName::from_static("x-a"), n.to_string())];
            let changes = crate::snapshot::HeaderChanges::new(
                [],
                fields.iter().map(|(name, value)| (name.as_str(), value.as_str())),
                [],
            );
            changes.unwrap()
        };
        let (address, _) = mirror().await;
        let matching = |n: u16, path: PathMatch, headers: &[HeaderMatch]| {
            let mut found = prefix("", set(&[address]));
            let mut rule = HttpRule::new(route_name(), n, set(&[address]));
            Arc::make_mut(&mut rule.filters).headers.request = name(n);
            found.rule = Arc::new(rule);
            let conditions = HttpRouteMatch { headers: headers.into(), ..HttpRouteMatch::by_path(path) };
            HttpMatch { conditions: Arc::new(conditions), ..found }
        };
        let version = HeaderMatch { name: "x-v".into(), value: "2".into() };
        let mut hosts = HostTable::default();
        hosts.insert(
            None,
            Arc::new(VirtualHost::new(vec![
                matching(1, PathMatch::Exact("/a.B/M".into()), &[version]),
                matching(2, PathMatch::Exact("/a.B/M".into()), &[]),
                matching(3, PathMatch::Prefix("/a.B".into()), &[]),
                matching(4, PathMatch::Method("M".into()), &[]),
            ])),
        );
        let mut http = HostTable::default();
        http.insert(
            None,
            Arc::new(VirtualHost::new(vec![matching(9, PathMatch::Prefix("/web".into()), &[])])),
        );
        lab.publish_listener(HttpVirtualListener { grpc: hosts, ..virtual_listener(http) });
        let mut client = open(lab).await;
        for (path, has_version, rule) in [
            ("/a.B/M", true, "x-a: 1\n"),
            ("/a.B/M", false, "x-a: 2\n"),
            ("/a.B/m", false, "x-a: 3\n"),
            ("/c/M", false, "x-a: 4\n"),
            ("/web/x", false, "x-a: 9\n"),
        ] {
            let mut request = call(path);
            if has_version {
                request.headers_mut().insert("x-v", HeaderValue::from_static("2"));
            }
            let (_, text, _) = ask(&mut client, request).await;
            assert!(text.contains(rule), "{path}: {text}");
        }
        assert_eq!(trailers_only(&ask(&mut client, call("/c/x")).await), "12");
        assert_eq!(ask(&mut client, get("/a.B/M")).await.0.status(), 404);
        assert_eq!(ask(&mut client, get("/web")).await.0.status(), 200);
        // By HTTP/1 there are no such calls.
        let answer =
            lab.ask("POST /a.B/M HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nConnection: close\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 505 "), "{answer}");
    });
}

#[test]
fn idle_connections_to_servers_are_closed_and_stopping_ends_them() {
    run_paused(async |lab| {
        let (address, _) = mirror().await;
        route_to(lab, &[address]);
        ask(&mut open(lab).await, get("/")).await;
        assert_eq!(lab.worker.links.count(), 1);
        until(|| lab.worker.links.count() == 0).await;
        until(|| !lab.worker.clock.has_timers()).await;
        ask(&mut open(lab).await, get("/")).await;
        assert_eq!(lab.worker.links.count(), 1);
        lab.drain.stop();
        until(|| lab.worker.links.count() == 0).await;
    });
}
