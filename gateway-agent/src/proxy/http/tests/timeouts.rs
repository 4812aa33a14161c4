//! How long routes let requests take.

use super::*;
use crate::snapshot::HttpTimeouts;

fn limited(addresses: &[SocketAddr], request: Option<u64>, backend_request: Option<u64>) -> HttpMatch {
    let mut found = prefix("", forward(addresses));
    let millis = |limit: Option<u64>| limit.map(Duration::from_millis);
    let timeouts = HttpTimeouts { request: millis(request), backend_request: millis(backend_request) };
    Arc::make_mut(&mut found.rule).timeouts = timeouts;
    found
}

/// Answers each request after this long.
async fn slow(after: Duration) -> SocketAddr {
    server(move |mut stream, _| async move {
        while read_request(&mut stream).await.is_some() {
            tokio::time::sleep(after).await;
            if stream.write_all(OK.as_bytes()).await.is_err() {
                break;
            }
        }
    })
    .await
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[test]
fn server_that_takes_longer_than_either_limit_is_504() {
    run_paused(async |lab| {
        let address = slow(Duration::from_secs(1)).await;
        for (request, backend_request) in [(Some(500), None), (None, Some(500)), (Some(5000), Some(500))] {
            lab.publish(None, vec![limited(&[address], request, backend_request)]);
            let start = tokio::time::Instant::now();
            let answer = lab.ask(GET).await;
            assert!(answer.starts_with("HTTP/1.1 504 Gateway Timeout\r\n"), "{answer}");
            let elapsed = start.elapsed().as_millis();
            assert!((500..800).contains(&elapsed), "{elapsed} ms");
        }
    });
}

#[test]
fn server_in_time_answers_and_no_limit_is_none() {
    run_paused(async |lab| {
        for (after, request, backend_request) in [(400, Some(500), Some(500)), (50_000, None, None)] {
            let address = slow(Duration::from_millis(after)).await;
            lab.publish(None, vec![limited(&[address], request, backend_request)]);
            let answer = lab.ask(GET).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        }
    });
}

#[test]
fn limit_ends_with_its_request() {
    run_paused(async |lab| {
        let address = slow(Duration::from_millis(400)).await;
        lab.publish(None, vec![limited(&[address], Some(500), Some(500))]);
        let mut client = lab.connect().await;
        for _ in 0..3 {
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            expect(&mut client, OK).await;
            // Idle for longer than the limit.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
}

#[test]
fn client_that_sends_slower_than_the_limit_is_504() {
    run_paused(async |lab| {
        let (address, ..) = canned(OK).await;
        lab.publish(None, vec![limited(&[address], Some(500), None)]);
        let answer = lab.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab").await;
        assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
        assert!(answer.contains("Connection: close\r\n"), "{answer}");
    });
}

// O34
#[test]
fn answer_that_has_begun_is_cut_and_an_unlimited_stream_is_not() {
    run_paused(async |lab| {
        let address = server(|mut stream, _| async move {
            read_request(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
            for _ in 0..18 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if stream.write_all(b"2\r\nev\r\n").await.is_err() {
                    return;
                }
            }
            stream.write_all(b"0\r\n\r\n").await.unwrap();
        })
        .await;
        lab.publish(None, vec![limited(&[address], Some(15_500), None)]);
        let answer = lab.ask(GET).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && !answer.ends_with("0\r\n\r\n"), "{answer}");
        assert!((14..=15).contains(&answer.matches("ev\r\n").count()), "{answer}");
        lab.publish(None, vec![limited(&[address], None, None)]);
        let answer = lab.ask(GET).await;
        assert!(answer.ends_with("0\r\n\r\n"), "{answer}");
    });
}

// O34
#[test]
fn upgraded_connection_outlives_the_limits_of_its_request() {
    run_paused(async |lab| {
        let address = server(|mut stream, _| async move {
            read_head(&mut stream).await;
            let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
            stream.write_all(switch.as_bytes()).await.unwrap();
            let byte = stream.read_u8().await.unwrap();
            stream.write_all(&[byte]).await.unwrap();
        })
        .await;
        lab.publish(None, vec![limited(&[address], Some(500), Some(500))]);
        let mut client = lab.connect().await;
        let asking = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        client.write_all(asking.as_bytes()).await.unwrap();
        assert!(read_head(&mut client).await.unwrap().starts_with("HTTP/1.1 101"));
        tokio::time::sleep(Duration::from_secs(5)).await;
        client.write_all(b"x").await.unwrap();
        expect(&mut client, "x").await;
    });
}
