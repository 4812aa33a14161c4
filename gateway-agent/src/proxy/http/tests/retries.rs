//! Further tries that routes ask for.

use super::*;
use crate::snapshot::{HttpTimeouts, Retry};

fn retried(addresses: &[SocketAddr], attempts: u32, codes: &[u16]) -> HttpMatch {
    let mut found = prefix("", forward(addresses));
    let retry = Retry { attempts, codes: codes.into(), backoff: Duration::from_millis(25) };
    Arc::make_mut(&mut found.rule).retry = Some(Arc::new(retry));
    found
}

/// Fails so many times with this status, then answers what it was asked.
async fn failing(status: u16, n_failures: usize) -> (SocketAddr, Rc<RefCell<Vec<String>>>) {
    let (requests, seen) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(Vec::new())));
    let all: Rc<RefCell<Vec<String>>> = requests.clone();
    let address = server(move |mut stream, _| {
        let (requests, seen) = (requests.clone(), seen.clone());
        async move {
            while let Some(request) = read_request(&mut stream).await {
                requests.borrow_mut().push(request.clone());
                seen.borrow_mut().push(());
                let is_late = seen.borrow().len() > n_failures;
                let status = if is_late { 200 } else { status };
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

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn retries(lab: &Lab) -> String {
    let text = crate::metrics::encode(&lab.metrics, &crate::metrics::Extra::default());
    let lines = text.lines().filter(|line| line.starts_with("gateway_agent_route_retries"));
    lines.map(|line| line.rsplit(' ').next().unwrap()).collect::<Vec<_>>().join(" ")
}

#[test]
fn status_is_retried_as_often_as_the_route_says() {
    run_paused(async |lab| {
        for (status, n_failures, attempts, codes, expected, n_requests) in [
            (500, 2, 3, &[500][..], 200, 3),
            (500, 4, 3, &[500][..], 500, 4),
            (503, 2, 3, &[500][..], 503, 1),
            (504, 1, 2, &[500, 502, 503, 504][..], 200, 2),
            (502, 3, 2, &[500, 502, 503, 504][..], 502, 3),
            (500, 1, 0, &[500][..], 500, 1),
        ] {
            let (address, requests) = failing(status, n_failures).await;
            lab.publish(None, vec![retried(&[address], attempts, codes)]);
            let answer = lab.ask(GET).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{status} {attempts}: {answer}");
            assert!(answer.ends_with("ok"), "{answer}");
            assert_eq!(requests.borrow().len(), n_requests, "{status} {attempts}");
        }
        assert_eq!(retries(lab), "8");
    });
}

#[test]
fn body_is_sent_again_whole() {
    run_paused(async |lab| {
        let large = "x".repeat(300_000);
        for body in ["hello", &large] {
            let (address, requests) = failing(503, 2).await;
            lab.publish(None, vec![retried(&[address], 3, &[503])]);
            let length = body.len();
            let request = format!(
                "POST /form HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            let answer = lab.ask(&request).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let requests = requests.borrow();
            assert_eq!(requests.len(), 3);
            assert!(requests.iter().all(|one| one.ends_with(&format!("\r\n\r\n{body}"))));
        }
    });
}

#[test]
fn request_after_a_retried_one_on_the_same_connection_is_whole() {
    run_paused(async |lab| {
        let mut client = lab.connect().await;
        let both = "POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n\
                    GET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
        let chunked = server(|mut stream, n| async move {
            let mut got = Vec::new();
            while !got.ends_with(b"0\r\n\r\n") && !got.starts_with(b"GET") {
                got.push(stream.read_u8().await.unwrap());
            }
            let status = if n == 0 { 503 } else { 200 };
            let answer = format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
            stream.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        lab.publish(None, vec![retried(&[chunked], 1, &[503])]);
        client.write_all(both.as_bytes()).await.unwrap();
        for _ in 0..2 {
            expect(&mut client, "HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\nok").await;
        }
    });
}

#[test]
fn body_that_is_too_large_to_be_kept_is_sent_once() {
    run_paused(async |lab| {
        let (address, requests) = failing(503, 1).await;
        lab.publish(None, vec![retried(&[address], 3, &[503])]);
        let body = "x".repeat(1024 * 1024 + 1);
        let length = body.len();
        let request = format!(
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        assert!(lab.ask(&request).await.starts_with("HTTP/1.1 503"));
        assert_eq!(requests.borrow().len(), 1);
    });
}

#[test]
fn each_try_goes_to_another_endpoint() {
    run_paused(async |lab| {
        let mut servers = Vec::new();
        for _ in 0..4 {
            servers.push(failing(503, 100).await);
        }
        let addresses: Vec<SocketAddr> = servers.iter().map(|(address, _)| *address).collect();
        lab.publish(None, vec![retried(&addresses, 3, &[503])]);
        assert!(lab.ask(GET).await.starts_with("HTTP/1.1 503"));
        assert!(servers.iter().all(|(_, requests)| requests.borrow().len() == 1));
    });
}

#[test]
fn refused_connections_are_retried_until_an_endpoint_takes_them() {
    run_paused(async |lab| {
        let address = refusing().await;
        let mut found = retried(&[address], 5, &[]);
        lab.publish(None, vec![found.clone()]);
        assert!(lab.ask(GET).await.starts_with("HTTP/1.1 502"));
        assert_eq!(retries(lab), "5");
        // It comes back meanwhile.
        let retry = Retry { attempts: 50, codes: [].into(), backoff: Duration::from_secs(1) };
        Arc::make_mut(&mut found.rule).retry = Some(Arc::new(retry));
        lab.publish(None, vec![found]);
        let revived = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let listener = TcpListener::bind(address).await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await;
            stream.write_all(OK.as_bytes()).await.unwrap();
        };
        let (answer, ()) = tokio::join!(lab.ask(GET), revived);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    });
}

// O27
#[test]
fn what_may_have_been_acted_upon_is_not_sent_twice() {
    run_paused(async |lab| {
        let n_requests = Rc::new(Cell::new(0));
        let counter = n_requests.clone();
        let address = server(move |mut stream, _| {
            let counter = counter.clone();
            async move {
                if read_request(&mut stream).await.is_some() {
                    counter.set(counter.get() + 1);
                }
            }
        })
        .await;
        lab.publish(None, vec![retried(&[address], 3, &[502])]);
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
        assert!(lab.ask(post).await.starts_with("HTTP/1.1 502"));
        assert_eq!(n_requests.take(), 1);
        // Once by itself, three times as the route says.
        let put = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
        assert!(lab.ask(put).await.starts_with("HTTP/1.1 502"));
        assert_eq!(n_requests.take(), 5);
        lab.publish(None, vec![retried(&[address], 0, &[])]);
        assert!(lab.ask(GET).await.starts_with("HTTP/1.1 502"));
        assert_eq!(n_requests.take(), 1, "no attempts forbid the proxy's own");
    });
}

#[test]
fn try_that_takes_too_long_is_given_up_for_the_next() {
    run_paused(async |lab| {
        let address = server(|mut stream, n| async move {
            while read_request(&mut stream).await.is_some() {
                let wait = if n < 2 { 1000 } else { 100 };
                tokio::time::sleep(Duration::from_millis(wait)).await;
                stream.write_all(OK.as_bytes()).await.ok();
            }
        })
        .await;
        let mut found = retried(&[address], 3, &[500]);
        let limits = |request, one_try| HttpTimeouts {
            request: Some(Duration::from_millis(request)),
            backend_request: Some(Duration::from_millis(one_try)),
        };
        Arc::make_mut(&mut found.rule).timeouts = limits(15_000, 500);
        lab.publish(None, vec![found.clone()]);
        assert!(lab.ask(GET).await.starts_with("HTTP/1.1 200"));
        let never =
            server(|mut stream, _| async move { while read_request(&mut stream).await.is_some() {} }).await;
        let mut found = retried(&[never], 30, &[500]);
        Arc::make_mut(&mut found.rule).timeouts = limits(2_000, 500);
        lab.publish(None, vec![found]);
        let start = tokio::time::Instant::now();
        assert!(lab.ask(GET).await.starts_with("HTTP/1.1 504"));
        let elapsed = start.elapsed().as_millis();
        assert!((2_000..2_500).contains(&elapsed), "{elapsed} ms");
        let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
        let start = tokio::time::Instant::now();
        assert!(lab.ask(post).await.starts_with("HTTP/1.1 504"));
        assert!(start.elapsed().as_millis() < 1_000, "it may have been acted upon");
    });
}

#[test]
fn request_limit_cuts_a_wait_between_tries() {
    run_paused(async |lab| {
        let (address, _) = failing(500, 100).await;
        let mut found = retried(&[address], 3, &[500]);
        let rule = Arc::make_mut(&mut found.rule);
        let (attempts, backoff) = (3, Duration::from_secs(100));
        rule.retry = Some(Arc::new(Retry { attempts, codes: [500].into(), backoff }));
        rule.timeouts.request = Some(Duration::from_secs(5));
        lab.publish(None, vec![found]);
        let start = tokio::time::Instant::now();
        assert!(lab.ask(GET).await.starts_with("HTTP/1.1 504"));
        assert!((5..7).contains(&start.elapsed().as_secs()));
    });
}

#[test]
fn outage_is_no_storm() {
    run_paused(async |lab| {
        let (address, requests) = failing(503, usize::MAX).await;
        lab.publish(None, vec![retried(&[address], 10, &[503])]);
        let mut clients = Vec::new();
        for _ in 0..100 {
            clients.push(lab.connect().await);
        }
        for client in &mut clients {
            client.write_all(GET.as_bytes()).await.unwrap();
        }
        for client in &mut clients {
            assert!(read_to_end(client).await.starts_with("HTTP/1.1 503"));
        }
        // The burst of a quiet time, a fifth of the requests, and ten a second.
        let n_requests = requests.borrow().len();
        assert!((200..260).contains(&n_requests), "{n_requests}");
        assert!(retries(lab).split(' ').count() == 2, "{}", retries(lab));
    });
}

#[test]
fn client_that_goes_away_ends_the_tries() {
    run_paused(async |lab| {
        let (address, requests) = failing(500, 100).await;
        let mut found = retried(&[address], 100, &[500]);
        let retry = Retry { attempts: 100, codes: [500].into(), backoff: Duration::from_secs(3600) };
        Arc::make_mut(&mut found.rule).retry = Some(Arc::new(retry));
        lab.publish(None, vec![found]);
        let mut client = lab.connect().await;
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        until(|| requests.borrow().len() == 1).await;
        socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        let start = tokio::time::Instant::now();
        until(|| !lab.worker.clock.has_timers()).await;
        assert!(start.elapsed() < Duration::from_secs(60));
        assert_eq!(requests.borrow().len(), 1);
    });
}

#[test]
fn endpoint_that_fails_is_left_out_and_tried_again_later() {
    run_paused(async |lab| {
        let n_bad = Rc::new(Cell::new(0));
        let counter = n_bad.clone();
        let is_mended = Rc::new(Cell::new(false));
        let mended = is_mended.clone();
        let bad = server(move |mut stream, _| {
            let (counter, mended) = (counter.clone(), mended.clone());
            async move {
                while read_request(&mut stream).await.is_some() {
                    counter.set(counter.get() + 1);
                    if !mended.get() || stream.write_all(OK.as_bytes()).await.is_err() {
                        break;
                    }
                }
            }
        })
        .await;
        let (good, ..) = canned(OK).await;
        lab.route_to(&[bad, good]);
        for _ in 0..100 {
            assert!(lab.ask(GET).await.starts_with("HTTP/1.1 200"));
        }
        // Five, and one in ten seconds.
        assert!((5..20).contains(&n_bad.get()), "{}", n_bad.get());
        n_bad.set(0);
        assert!(lab.worker.cells.endpoint_ejections.value() >= 1);
        is_mended.set(true);
        tokio::time::sleep(Duration::from_secs(11)).await;
        for _ in 0..100 {
            assert!(lab.ask(GET).await.starts_with("HTTP/1.1 200"));
        }
        assert!(n_bad.get() > 20, "{}", n_bad.get());
    });
}

#[test]
fn last_endpoint_is_asked_however_often_it_failed() {
    run_paused(async |lab| {
        let address = refusing().await;
        lab.route_to(&[address]);
        for _ in 0..8 {
            assert!(lab.ask(GET).await.starts_with("HTTP/1.1 502"));
        }
        let listener = TcpListener::bind(address).await.unwrap();
        tokio::task::spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await;
            stream.write_all(OK.as_bytes()).await.unwrap();
        });
        assert!(lab.ask(GET).await.starts_with("HTTP/1.1 200"));
    });
}
