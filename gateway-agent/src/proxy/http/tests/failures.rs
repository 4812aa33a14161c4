//! Servers and clients that refuse, reset, stall and leave.

use std::time::Instant;

use super::*;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const GET_CLOSE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";

fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

// O27
#[test]
fn refused_connection_is_tried_elsewhere() {
    run(async |lab| {
        let (good, requests, _) = canned(OK).await;
        lab.route_to(&[refusing().await, good, refusing().await]);
        for _ in 0..50 {
            assert!(lab.ask(GET_CLOSE).await.ends_with("ok"));
            let mut client = lab.connect().await;
            client.write_all(POST).await.unwrap();
            expect(&mut client, OK).await;
        }
        assert_eq!(requests.borrow().len(), 100);
    });
}

#[test]
fn no_endpoint_that_accepts_is_502_after_bounded_attempts() {
    run(async |lab| {
        lab.route_to(&[refusing().await]);
        assert!(lab.ask(GET_CLOSE).await.starts_with("HTTP/1.1 502 "));
        let mut addresses = Vec::new();
        for _ in 0..10 {
            addresses.push(refusing().await);
        }
        lab.route_to(&addresses);
        assert!(lab.ask(GET_CLOSE).await.starts_with("HTTP/1.1 502 "));
    });
}

// O27
#[test]
fn kept_connection_closed_by_its_server_costs_no_request() {
    run(async |lab| {
        let (stays, ..) = canned(OK).await;
        let leaves = server(|mut stream, _| async move {
            read_request(&mut stream).await;
            stream.write_all(OK.as_bytes()).await.unwrap();
        })
        .await;
        for n in 0..400 {
            let other = refusing().await;
            let addresses = [leaves, other];
            lab.route_to(&addresses[..1 + n % 2]);
            let mut client = lab.connect().await;
            for request in [GET, GET, POST, POST] {
                client.write_all(request).await.unwrap();
                expect(&mut client, OK).await;
            }
            lab.route_to(&[stays, leaves]);
            client.write_all(GET).await.unwrap();
            expect(&mut client, OK).await;
        }
    });
}

// O27
#[test]
fn unanswered_request_is_repeated_once_where_twice_is_as_good() {
    run(async |lab| {
        // Every second connection closes after a request without an answer, as if it had just timed out.
        let n_requests = Rc::new(Cell::new(0));
        let count = n_requests.clone();
        let address = server(move |mut stream, n| {
            let count = count.clone();
            async move {
                while read_request(&mut stream).await.is_some() {
                    count.set(count.get() + 1);
                    if n % 2 == 0 {
                        return;
                    }
                    stream
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                        .await
                        .unwrap();
                }
            }
        })
        .await;
        lab.route_to(&[address]);
        assert!(lab.ask(GET_CLOSE).await.starts_with("HTTP/1.1 200 "));
        assert_eq!(n_requests.get(), 2);
        let mut client = lab.connect().await;
        client.write_all(POST).await.unwrap();
        assert!(read_head(&mut client).await.unwrap().starts_with("HTTP/1.1 502 "));
        assert_eq!(n_requests.get(), 3, "what may have been acted upon is not repeated");
    });
}

#[test]
fn failed_request_takes_nothing_of_the_next_one() {
    run(async |lab| {
        let address = server(|mut stream, _| async move {
            while let Some(request) = read_request(&mut stream).await {
                if request.starts_with("POST") {
                    return;
                }
                stream.write_all(OK.as_bytes()).await.unwrap();
            }
        })
        .await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        client.write_all(&[POST, GET, POST, GET].concat()).await.unwrap();
        for _ in 0..2 {
            expect(&mut client, "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nBad Gateway\n")
                .await;
            expect(&mut client, OK).await;
        }
    });
}

#[test]
fn server_that_never_answers_is_asked_twice_at_most() {
    run(async |lab| {
        let n_connections = Rc::new(Cell::new(0));
        let count = n_connections.clone();
        let address = server(move |mut stream, n| {
            count.set(n + 1);
            async move {
                read_request(&mut stream).await;
                reset(stream);
            }
        })
        .await;
        lab.route_to(&[address]);
        assert!(lab.ask(GET_CLOSE).await.starts_with("HTTP/1.1 502 "));
        assert_eq!(n_connections.get(), 2);
    });
}

#[test]
fn answer_that_is_no_answer_is_502() {
    run(async |lab| {
        let large = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "a".repeat(70_000)).leak();
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(300)).leak();
        for answer in [
            "nonsense\r\n\r\n",
            "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "\r\nHTTP/1.1 200 OK\r\n\r\n",
            large,
            many,
        ] {
            let (address, ..) = canned(answer).await;
            lab.route_to(&[address]);
            assert!(lab.ask(GET_CLOSE).await.starts_with("HTTP/1.1 502 "), "{answer:.60}");
        }
    });
}

#[test]
fn stalled_server_is_504_and_a_stalled_upload_408() {
    run_paused(async |lab| {
        let address = server(|mut stream, _| async move {
            read_head(&mut stream).await;
            std::future::pending::<()>().await;
        })
        .await;
        lab.route_to(&[address]);
        let started = tokio::time::Instant::now();
        assert!(lab.ask(GET_CLOSE).await.starts_with("HTTP/1.1 504 "));
        assert!(started.elapsed() < Duration::from_secs(66));
        let stalled = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhalf";
        assert!(lab.ask(stalled).await.starts_with("HTTP/1.1 408 "));
    });
}

#[test]
fn answer_that_stalls_midway_is_cut_off() {
    run_paused(async |lab| {
        let address = server(|mut stream, _| async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
        lab.route_to(&[address]);
        assert_eq!(
            lab.ask(GET_CLOSE).await,
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhalf"
        );
    });
}

#[test]
fn broken_answer_is_not_taken_for_a_whole_one() {
    run(async |lab| {
        let address = server(|mut stream, n| async move {
            read_head(&mut stream).await;
            let answer: &[u8] = match n {
                0 => b"HTTP/1.1 200 OK\r\n\r\nhalf",
                _ => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            };
            stream.write_all(answer).await.unwrap();
            // The proxy must have read it before the reset discards it.
            stream.read_u8().await.unwrap();
            reset(stream);
        })
        .await;
        lab.route_to(&[address]);
        for version in ["1.1", "1.0"] {
            let mut client = lab.connect().await;
            client
                .write_all(
                    format!("POST / HTTP/{version}\r\nHost: a\r\nContent-Length: 1\r\n\r\n").as_bytes(),
                )
                .await
                .unwrap();
            while client.read_u8().await.unwrap() != b'f' {}
            client.write_all(b"x").await.unwrap();
            let result = client.read_to_end(&mut Vec::new()).await;
            assert!(result.is_err(), "closed as if complete");
        }
    });
}

// O04
#[test]
fn silent_clients_are_let_go() {
    run_paused(async |lab| {
        let (address, ..) = canned(OK).await;
        lab.route_to(&[address]);
        let started = tokio::time::Instant::now();
        assert_eq!(lab.ask("").await, "");
        assert!(lab.ask("GET / HT").await.starts_with("HTTP/1.1 408 "));
        assert!(started.elapsed() < Duration::from_secs(35), "{:?}", started.elapsed());
        let mut client = lab.connect().await;
        client.write_all(GET).await.unwrap();
        expect(&mut client, OK).await;
        assert_eq!(read_to_end(&mut client).await, "");
    });
}

// O04
#[test]
fn dripping_head_does_not_extend_its_deadline() {
    run_paused(async |lab| {
        let started = tokio::time::Instant::now();
        let (mut reader, mut writer) = lab.connect().await.into_split();
        tokio::task::spawn_local(async move {
            for byte in b"GET / HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".iter().cycle() {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if writer.write_all(&[*byte]).await.is_err() {
                    break;
                }
            }
        });
        let mut answer = vec![0; 12];
        reader.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"HTTP/1.1 408");
        assert!(started.elapsed() < Duration::from_secs(12));
    });
}

// O04
#[test]
fn good_client_is_served_beside_many_silent_ones() {
    run(async |lab| {
        let (address, ..) = canned(OK).await;
        lab.route_to(&[address]);
        let mut silent = Vec::new();
        for _ in 0..300 {
            silent.push(lab.connect().await);
        }
        let started = Instant::now();
        assert!(lab.ask(GET_CLOSE).await.ends_with("ok"));
        assert!(started.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn client_that_leaves_cancels_its_request() {
    run(async |lab| {
        let (n_begun, n_cancelled) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (begun, count) = (n_begun.clone(), n_cancelled.clone());
        let address = server(move |mut stream, _| {
            let (begun, count) = (begun.clone(), count.clone());
            async move {
                read_head(&mut stream).await;
                begun.set(begun.get() + 1);
                while matches!(stream.read(&mut [0; 64]).await, Ok(n) if n > 0) {}
                count.set(count.get() + 1);
            }
        })
        .await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        client.write_all(GET).await.unwrap();
        drop(client);
        let mut client = lab.connect().await;
        client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
        drop(client);
        let mut client = lab.connect().await;
        client.write_all(GET).await.unwrap();
        until(|| n_begun.get() == 3).await;
        reset(client);
        until(|| n_cancelled.get() == 3).await;
    });
}

#[test]
fn client_that_only_stops_sending_gets_its_answers() {
    run(async |lab| {
        let (address, ..) = canned(OK).await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        client.write_all(&[GET, GET].concat()).await.unwrap();
        client.shutdown().await.unwrap();
        let answer = read_to_end(&mut client).await;
        assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 2, "{answer}");
    });
}
