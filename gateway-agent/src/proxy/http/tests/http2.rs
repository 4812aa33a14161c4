//! Clients that speak HTTP/2, before servers that speak HTTP/1.

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};

use super::*;
use crate::snapshot::{HeaderChanges, PathChange, Redirect};

/// A client after its preface. Its connection is driven by a task.
pub(super) async fn open(lab: &Lab) -> SendRequest<Bytes> {
    let stream = lab.connect().await;
    let (client, connection) = h2::client::Builder::new().handshake(stream).await.unwrap();
    tokio::task::spawn_local(async move { drop(connection.await) });
    client.ready().await.unwrap()
}

pub(super) fn get(path: &str) -> Request<()> {
    Request::get(format!("http://a.example{path}")).body(()).unwrap()
}

pub(super) fn post(path: &str) -> http::request::Builder {
    Request::post(format!("http://a.example{path}"))
}

/// Head, body and trailers of an answer.
pub(super) type Answer = (Response<()>, String, Option<HeaderMap>);

pub(super) async fn read(response: ResponseFuture) -> Result<Answer, h2::Error> {
    let (head, body) = response.await?.into_parts();
    let (body, trailers) = read_body(body).await?;
    Ok((Response::from_parts(head, ()), body, trailers))
}

pub(super) async fn read_body(mut body: RecvStream) -> Result<(String, Option<HeaderMap>), h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    Ok((String::from_utf8(all).unwrap(), body.trailers().await?))
}

/// A request without a body.
pub(super) async fn ask(client: &mut SendRequest<Bytes>, request: Request<()>) -> Answer {
    let (response, _) = client.send_request(request, true).unwrap();
    read(response).await.unwrap()
}

fn begin(client: &mut SendRequest<Bytes>, request: Request<()>) -> (ResponseFuture, SendStream<Bytes>) {
    client.send_request(request, false).unwrap()
}

/// A server that keeps every byte it gets, and answers each of `ends` with the next answer.
async fn recorded(steps: &'static [(&'static str, &'static str)]) -> (SocketAddr, Rc<RefCell<String>>) {
    let seen = Rc::new(RefCell::new(String::new()));
    let all = seen.clone();
    let address = server(move |mut stream, _| {
        let all = all.clone();
        async move {
            let mut at = all.borrow().len();
            for (end, answer) in steps {
                while !all.borrow().get(at..).unwrap().ends_with(end) {
                    let Ok(byte) = stream.read_u8().await else { return };
                    all.borrow_mut().push(char::from(byte));
                }
                at = all.borrow().len();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            // What should not come any more.
            while let Ok(byte) = stream.read_u8().await {
                all.borrow_mut().push(char::from(byte));
            }
        }
    })
    .await;
    (address, seen)
}

// O31
#[test]
fn both_versions_are_served_on_one_cleartext_listener() {
    run(async |lab| {
        let (address, requests, n_connections) = canned(OK).await;
        lab.route_to(&[address]);
        let mut client = open(lab).await;
        let mut request = get("/a/../b%41?c=d");
        request.headers_mut().insert("x-a", "1".parse().unwrap());
        request.headers_mut().append("cookie", "a=1".parse().unwrap());
        request.headers_mut().append("cookie", "b=2".parse().unwrap());
        request.headers_mut().insert("x-forwarded-for", "6.6.6.6".parse().unwrap());
        request.headers_mut().insert("te", "trailers".parse().unwrap());
        let (head, body, trailers) = ask(&mut client, request).await;
        assert_eq!((head.status().as_u16(), body.as_str(), trailers), (200, "ok", None));
        assert_eq!(head.headers()["content-length"], "2");
        let expected = "GET /bA?c=d HTTP/1.1\r\nhost: a.example\r\nx-a: 1\r\ncookie: a=1; b=2\r\n\
            X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a.example\r\n\
            X-Forwarded-Port: 80\r\n\r\n";
        assert_eq!(requests.borrow().len(), 1);
        assert_eq!(without_id(&requests.borrow()[0]), expected);
        assert!(lab.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.ends_with("ok"));
        // Kept and used again, by either.
        assert_eq!(n_connections.get(), 1);
    });
}

// O17
#[test]
fn body_of_unknown_length_is_chunked_and_ended_once() {
    const STEPS: &[(&str, &str)] = &[("0\r\n\r\n", OK), ("\r\n\r\n", OK)];
    run(async |lab| {
        let (address, seen) = recorded(STEPS).await;
        lab.route_to(&[address]);
        let mut client = open(lab).await;
        let (response, mut body) = begin(&mut client, post("/").body(()).unwrap());
        body.send_data(Bytes::from_static(b"x"), false).unwrap();
        // An empty frame may say that it is the end.
        body.send_data(Bytes::new(), true).unwrap();
        assert_eq!(read(response).await.unwrap().1, "ok");
        assert_eq!(ask(&mut client, get("/second")).await.1, "ok");
        let seen = seen.borrow();
        let (first, second) = seen.split_once("1\r\nx\r\n0\r\n\r\n").unwrap();
        assert!(first.contains("transfer-encoding: chunked\r\n"), "{seen}");
        assert!(second.starts_with("GET /second HTTP/1.1\r\n"), "{seen}");
        assert!(!second.contains("transfer-encoding") && !second.contains("content-length"), "{seen}");
    });
}

#[test]
fn announced_length_is_kept_and_no_body_has_no_framing() {
    run(async |lab| {
        let (address, requests, _) = canned(OK).await;
        lab.route_to(&[address]);
        let mut client = open(lab).await;
        let request = post("/").header("content-length", "5").body(()).unwrap();
        let (response, mut body) = begin(&mut client, request);
        body.send_data(Bytes::from_static(b"hello"), true).unwrap();
        assert_eq!(read(response).await.unwrap().0.status(), 200);
        ask(&mut client, post("/").body(()).unwrap()).await;
        ask(&mut client, post("/").header("content-length", "0").body(()).unwrap()).await;
        let requests = requests.borrow();
        assert!(requests[0].contains("content-length: 5\r\n") && requests[0].ends_with("\r\n\r\nhello"));
        assert!(!requests[1].contains("content-length") && !requests[1].contains("transfer-encoding"));
        assert!(requests[2].contains("content-length: 0\r\n"));
    });
}

#[test]
fn trailers_pass_both_ways_and_those_that_route_do_not() {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n\
        3;ext=1\r\nabc\r\n0\r\nX-Sum: 9\r\nx-more:  a b \r\n\r\n";
    run(async |lab| {
        let (address, seen) = recorded(&[("x-up: 1\r\n\r\n", ANSWER)]).await;
        lab.route_to(&[address]);
        let mut client = open(lab).await;
        let (response, mut body) = begin(&mut client, post("/").body(()).unwrap());
        body.send_data(Bytes::from_static(b"data"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("content-length", "9".parse().unwrap());
        trailers.insert("host", "evil".parse().unwrap());
        trailers.insert("x-up", "1".parse().unwrap());
        body.send_trailers(trailers).unwrap();
        let (head, body, trailers) = read(response).await.unwrap();
        assert!(head.headers().get("transfer-encoding").is_none());
        let trailers = trailers.unwrap();
        assert_eq!(body, "abc");
        assert_eq!(trailers["x-sum"], "9");
        assert_eq!(trailers["x-more"], "a b");
        assert!(seen.borrow().ends_with("4\r\ndata\r\n0\r\nx-up: 1\r\n\r\n"), "{}", seen.borrow());
    });
}

// O20
#[test]
fn answers_without_a_body_end_with_their_head() {
    run(async |lab| {
        let (address, requests, n_connections) = {
            let (requests, n) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(0)));
            let (seen, connections) = (requests.clone(), n.clone());
            let address = server(move |mut stream, _| {
                connections.set(connections.get() + 1);
                let seen = seen.clone();
                async move {
                    while let Some(request) = read_request(&mut stream).await {
                        let answer = match request.split(' ').nth(1).unwrap() {
                            "/head" => "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
                            "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
                            "/204" => "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
                            _ => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                        };
                        seen.borrow_mut().push(request);
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                }
            })
            .await;
            (address, requests, n)
        };
        lab.route_to(&[address]);
        let mut client = open(lab).await;
        let head = Request::head("http://a/head").body(()).unwrap();
        for (request, status, length) in [
            (head, 200, Some("1234")),
            (get("/304"), 304, Some("5")),
            (get("/204"), 204, None),
            (get("/empty"), 200, Some("0")),
        ] {
            let (head, body, _) = ask(&mut client, request).await;
            let got = head.headers().get("content-length").map(|value| value.to_str().unwrap());
            assert_eq!((head.status().as_u16(), got, body.as_str()), (status, length, ""));
        }
        assert_eq!((requests.borrow().len(), n_connections.get()), (4, 1));
    });
}

// O19
#[test]
fn interim_answers_pass_and_100_only_where_it_was_asked_for() {
    const EARLY: &str = "HTTP/1.1 100 Continue\r\nContent-Length: 168\r\n\r\nHTTP/1.1 103 Early Hints\r\n\
        Link: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    async fn interim(response: &mut ResponseFuture) -> Vec<u16> {
        let mut all = Vec::new();
        while let Some(head) = std::future::poll_fn(|cx| response.poll_informational(cx)).await {
            all.push(head.unwrap().status().as_u16());
        }
        all
    }
    run(async |lab| {
        let (address, ..) = canned(EARLY).await;
        lab.route_to(&[address]);
        let mut client = open(lab).await;
        let (mut response, _) = client.send_request(get("/"), true).unwrap();
        assert_eq!(interim(&mut response).await, [103]);
        assert_eq!(read(response).await.unwrap().1, "ok");
        let mut request = get("/");
        request.headers_mut().insert("expect", "100-continue".parse().unwrap());
        let (mut response, _) = client.send_request(request, true).unwrap();
        assert_eq!(interim(&mut response).await, [100, 103]);
        assert_eq!(read(response).await.unwrap().1, "ok");
    });
}

#[test]
fn upgrade_that_was_not_asked_for_is_502() {
    run(async |lab| {
        let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
        let (address, ..) = canned(answer).await;
        lab.route_to(&[address]);
        assert_eq!(ask(&mut open(lab).await, get("/")).await.0.status(), 502);
    });
}

#[test]
fn streams_do_not_wait_for_each_other() {
    run(async |lab| {
        let go = Rc::new(tokio::sync::Notify::new());
        let gate = go.clone();
        let address = server(move |mut stream, _| {
            let gate = gate.clone();
            async move {
                while let Some(head) = read_head(&mut stream).await {
                    if head.starts_with("GET /slow") {
                        gate.notified().await;
                    }
                    stream.write_all(OK.as_bytes()).await.unwrap();
                }
            }
        })
        .await;
        lab.route_to(&[address]);
        let mut client = open(lab).await;
        let (slow, _) = client.send_request(get("/slow"), true).unwrap();
        let fast: Vec<_> = (0..50).map(|_| client.send_request(get("/"), true).unwrap().0).collect();
        for response in fast {
            assert_eq!(read(response).await.unwrap().1, "ok");
        }
        go.notify_one();
        assert_eq!(read(slow).await.unwrap().1, "ok");
    });
}

// O26
#[test]
fn answer_before_the_end_of_the_request_reaches_the_client() {
    const ANSWER: &str = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig";
    run(async |lab| {
        let address = server(|mut stream, _| async move {
            read_head(&mut stream).await;
            stream.write_all(ANSWER.as_bytes()).await.unwrap();
        })
        .await;
        lab.route_to(&[address]);
        let mut client = open(lab).await;
        let (response, mut body) = begin(&mut client, post("/").body(()).unwrap());
        body.send_data(Bytes::from(vec![b'x'; 30_000]), false).unwrap();
        let (head, text, _) = read(response).await.unwrap();
        assert_eq!((head.status().as_u16(), text.as_str()), (413, "big"));
        // RFC 9113 section 8.1: the rest is not wanted, and nothing is wrong.
        let reason = std::future::poll_fn(|cx| body.poll_reset(cx)).await.unwrap();
        assert_eq!(reason, Reason::NO_ERROR);
    });
}

#[test]
fn server_that_does_not_read_holds_the_client_up() {
    run(async |lab| {
        let address = server(|stream, _| async move {
            std::future::pending::<()>().await;
            drop(stream);
        })
        .await;
        lab.route_to(&[address]);
        let mut client = open(lab).await;
        let (_response, mut body) = begin(&mut client, post("/").body(()).unwrap());
        let mut n_taken = 0;
        // Windows of both sides, a piece, and what sockets hold on loopback; not what the client has.
        loop {
            body.reserve_capacity(16 * 1024);
            let room = std::future::poll_fn(|cx| body.poll_capacity(cx));
            match tokio::time::timeout(Duration::from_millis(500), room).await {
                Err(_elapsed) => break,
                Ok(room) => {
                    let room = room.unwrap().unwrap();
                    n_taken += room;
                    assert!(n_taken < 64 * 1024 * 1024, "the proxy takes whatever comes");
                    body.send_data(Bytes::from(vec![0; room]), false).unwrap();
                }
            }
        }
    });
}

// O30
#[test]
fn slow_client_gets_all_of_the_answer() {
    run(async |lab| {
        let address = server(|mut stream, _| async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n").await.unwrap();
            stream.write_all(&vec![b'x'; 4_000_000]).await.unwrap();
        })
        .await;
        lab.route_to(&[address]);
        let mut client = open(lab).await;
        // The request has not ended when the answer has.
        let (response, _body) = begin(&mut client, post("/").body(()).unwrap());
        let mut body = response.await.unwrap().into_body();
        let mut n_read = 0;
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            n_read += data.len();
            tokio::task::yield_now().await;
            body.flow_control().release_capacity(data.len()).unwrap();
        }
        assert_eq!(n_read, 4_000_000);
    });
}

#[test]
fn answer_that_is_cut_short_does_not_look_whole() {
    run(async |lab| {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        ] {
            let address = server(move |mut stream, _| async move {
                read_head(&mut stream).await;
                stream.write_all(answer.as_bytes()).await.unwrap();
            })
            .await;
            lab.route_to(&[address]);
            let (response, _) = open(lab).await.send_request(get("/"), true).unwrap();
            let error = read(response).await.unwrap_err();
            assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{answer}");
        }
    });
}

#[test]
fn errors_redirects_and_filters_are_those_of_the_other_version() {
    run(async |lab| {
        let mut client = open(lab).await;
        lab.publish(Some("other.example"), vec![]);
        let (head, body, _) = ask(&mut client, get("/")).await;
        assert_eq!((head.status().as_u16(), body.as_str()), (404, "Not Found\n"));
        assert_eq!(head.headers()["content-type"], "text/plain");
        for (action, status) in [
            (forward(&[]), 503),
            (forward(&[refusing().await]), 502),
            (HttpAction::Respond(500), 500),
            (HttpAction::Forward(Split::new(vec![WeightedBackend::new(1, Backend::Invalid)])), 500),
        ] {
            lab.publish(None, vec![prefix("", action)]);
            assert_eq!(ask(&mut client, get("/")).await.0.status(), status);
        }
        let redirect = Redirect {
            status: 301,
            scheme: Some(Scheme::Https),
            hostname: None,
            port: None,
            path: Some(PathChange::Full("/new".into())),
        };
        let mut found = prefix("", HttpAction::Redirect(Arc::new(redirect)));
        filters(&mut found.rule).headers.response =
            HeaderChanges::new([], [("x-a", "1"), ("location", "x")], []).unwrap();
        lab.publish(None, vec![found]);
        let (head, ..) = ask(&mut client, get("/old?q")).await;
        assert_eq!(head.status(), 301);
        assert_eq!(head.headers()["location"], "https://a.example/new?q");
        assert_eq!(head.headers()["x-a"], "1");
        let (address, requests, _) =
            canned("HTTP/1.1 200 OK\r\nX-Old: 1\r\nx-b: 1\r\nContent-Length: 0\r\n\r\n").await;
        let mut found = prefix("", forward(&[address]));
        let headers = &mut filters(&mut found.rule).headers;
        headers.request =
            HeaderChanges::new(["x-forwarded-host"], [("x-set", "2")], [("x-add", "3")]).unwrap();
        headers.response = HeaderChanges::new(["x-old"], [], [("x-b", "2")]).unwrap();
        lab.publish(None, vec![found]);
        let mut request = get("/");
        request.headers_mut().insert("x-add", "1".parse().unwrap());
        let (head, ..) = ask(&mut client, request).await;
        assert!(head.headers().get("x-old").is_none());
        assert_eq!(head.headers()["x-b"], "1,2");
        let seen = requests.borrow().concat();
        assert!(seen.contains("x-add: 1,3\r\n") && seen.contains("x-set: 2\r\n"), "{seen}");
        assert!(!seen.to_ascii_lowercase().contains("x-forwarded-host"), "{seen}");
    });
}

#[test]
fn options_of_the_server_and_connect_get_an_answer() {
    run(async |lab| {
        lab.route_to(&[refusing().await]);
        let mut client = open(lab).await;
        let options = Request::options("*").header("host", "a").body(()).unwrap();
        assert_eq!(ask(&mut client, options).await.0.status(), 200);
        let connect = Request::connect("a.example:443").body(()).unwrap();
        let (response, _body) = begin(&mut client, connect);
        assert_eq!(response.await.unwrap().status(), 501);
    });
}

// O32
#[test]
fn authority_and_host_have_to_be_the_same() {
    run(async |lab| {
        let (address, requests, _) = canned(OK).await;
        lab.route_to(&[address]);
        let mut client = open(lab).await;
        for (uri, host, expected) in [
            ("http://a.example/", Some("b.example"), Err(400)),
            ("http://a.example/", Some("A.example"), Ok("host: a.example\r\n")),
            ("http://a.example:80/", None, Ok("host: a.example:80\r\n")),
            ("/", Some("b.example:81"), Ok("host: b.example:81\r\n")),
            ("/", None, Err(400)),
            ("http://user@a.example/", None, Err(400)),
        ] {
            let mut request = Request::get(uri).body(()).unwrap();
            if let Some(host) = host {
                request.headers_mut().insert("host", host.parse().unwrap());
            }
            let before = requests.borrow().len();
            let (head, ..) = ask(&mut client, request).await;
            match expected {
                Err(status) => {
                    assert_eq!(head.status(), status, "{uri} {host:?}");
                    assert_eq!(requests.borrow().len(), before);
                }
                Ok(line) => {
                    assert_eq!(head.status(), 200, "{uri} {host:?}");
                    let seen = requests.borrow().last().cloned().unwrap();
                    assert!(seen.contains(line), "{seen}");
                    assert_eq!(seen.to_ascii_lowercase().matches("\nhost:").count(), 1);
                }
            }
        }
    });
}

#[test]
fn idempotent_request_is_repeated_once_where_the_server_closed() {
    run(async |lab| {
        let address = server(|mut stream, n| async move {
            read_head(&mut stream).await;
            if n > 0 {
                stream.write_all(OK.as_bytes()).await.unwrap();
            }
        })
        .await;
        lab.route_to(&[address]);
        let mut client = open(lab).await;
        assert_eq!(ask(&mut client, get("/")).await.1, "ok");
    });
}

// O39
#[test]
fn stopping_sends_goaway_and_lets_streams_end() {
    run(async |lab| {
        let go = Rc::new(tokio::sync::Notify::new());
        let is_busy = Rc::new(Cell::new(false));
        let (gate, busy) = (go.clone(), is_busy.clone());
        let address = server(move |mut stream, _| {
            let (gate, busy) = (gate.clone(), busy.clone());
            async move {
                read_head(&mut stream).await;
                busy.set(true);
                gate.notified().await;
                stream.write_all(OK.as_bytes()).await.unwrap();
            }
        })
        .await;
        lab.route_to(&[address]);
        let stream = lab.connect().await;
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        let driver = tokio::task::spawn_local(connection);
        let (response, _) = client.send_request(get("/"), true).unwrap();
        until(|| is_busy.get()).await;
        lab.drain.stop();
        // The codec refuses further requests as soon as it has read the GOAWAY.
        let refused = loop {
            match client.clone().ready().await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => break error,
            }
        };
        assert!(refused.is_go_away() && refused.reason() == Some(Reason::NO_ERROR), "{refused}");
        go.notify_one();
        assert_eq!(read(response).await.unwrap().1, "ok");
        drop(client);
        driver.await.unwrap().ok();
        until(|| !lab.worker.clock.has_timers()).await;
    });
}

#[test]
fn idle_connection_is_told_to_go_and_closed() {
    run_paused(async |lab| {
        let (address, ..) = canned(OK).await;
        lab.route_to(&[address]);
        let stream = lab.connect().await;
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        let driver = tokio::task::spawn_local(connection);
        assert_eq!(ask(&mut client, get("/")).await.1, "ok");
        driver.await.unwrap().ok();
        assert!(client.ready().await.is_err());
        until(|| !lab.worker.clock.has_timers()).await;
    });
}

#[test]
fn client_that_cancels_ends_the_request_behind() {
    run(async |lab| {
        let ended = Rc::new(Cell::new(false));
        let flag = ended.clone();
        let address = server(move |mut stream, _| {
            let flag = flag.clone();
            async move {
                read_head(&mut stream).await;
                flag.set(read_to_end(&mut stream).await.is_empty());
            }
        })
        .await;
        lab.route_to(&[address]);
        let mut client = open(lab).await;
        let (response, mut body) = begin(&mut client, get("/"));
        tokio::task::yield_now().await;
        body.send_reset(Reason::CANCEL);
        drop(response);
        until(|| ended.get()).await;
        // The connection lives on.
        lab.publish(None, vec![]);
        assert_eq!(ask(&mut client, get("/")).await.0.status(), 404);
    });
}
