//! Bodies in every framing, interim answers, upgrades.

use super::*;

#[test]
fn chunks_pass_as_they_are_both_ways() {
    run(async |lab| {
        const BODY: &str = "5;x=y\r\nhello\r\n0;z\r\nX-Sum: 1\r\n\r\n";
        let address = server(|mut stream, _| async move {
            while read_head(&mut stream).await.is_some() {
                expect(&mut stream, BODY).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
                for byte in BODY.bytes() {
                    stream.write_all(&[byte]).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        for _ in 0..3 {
            client
                .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await
                .unwrap();
            for byte in BODY.bytes() {
                client.write_all(&[byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
            expect(&mut client, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            expect(&mut client, BODY).await;
        }
    });
}

#[test]
fn large_bodies_pass_both_ways_at_once() {
    run(async |lab| {
        const LENGTH: usize = 5_000_000;
        let address = server(|stream, _| async move {
            let (mut reader, mut writer) = stream.into_split();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(reader.read_u8().await.unwrap());
            }
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
            writer.write_all(answer.as_bytes()).await.unwrap();
            tokio::io::copy(&mut reader.take(LENGTH as u64), &mut writer).await.unwrap();
        })
        .await;
        lab.route_to(&[address]);
        let (mut reader, mut writer) = lab.connect().await.into_split();
        let body: Vec<u8> = (0..LENGTH as u32).map(|n| (n % 251).to_le_bytes()[0]).collect();
        let sent = body.clone();
        tokio::task::spawn_local(async move {
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n");
            writer.write_all(head.as_bytes()).await.unwrap();
            writer.write_all(&sent).await.unwrap();
            std::future::pending::<()>().await;
        });
        let mut got = Vec::new();
        while !got.ends_with(b"\r\n\r\n") {
            got.push(reader.read_u8().await.unwrap());
        }
        let mut got = vec![0; LENGTH];
        reader.read_exact(&mut got).await.unwrap();
        assert!(got == body);
    });
}

// O20
#[test]
fn answers_without_body_are_complete_with_their_head() {
    run(async |lab| {
        let address = server(|mut stream, n| async move {
            assert_eq!(n, 0, "the connection is used again");
            while let Some(request) = read_request(&mut stream).await {
                let answer: &[u8] = match request.split(' ').nth(1).unwrap() {
                    "/head" => b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
                    "/head-chunked" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                    "/304" => b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
                    "/204" => b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
                    _ => b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                };
                stream.write_all(answer).await.unwrap();
            }
        })
        .await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        for (request, answer) in [
            ("HEAD /head", "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"),
            ("HEAD /head-chunked", "HTTP/1.1 200 OK\r\n\r\n"),
            ("GET /304", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
            ("GET /204", "HTTP/1.1 204 No Content\r\n\r\n"),
            ("GET /", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ] {
            client.write_all(format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
            expect(&mut client, answer).await;
        }
    });
}

// O19
#[test]
fn interim_answers_pass_and_are_never_final() {
    run(async |lab| {
        let (address, requests, _) = canned(
            "HTTP/1.1 100 Continue\r\nContent-Length: 168\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n\
             HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        )
        .await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        for _ in 0..2 {
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            expect(
                &mut client,
                "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n",
            )
            .await;
            expect(&mut client, OK).await;
        }
        let answer = lab.ask("GET / HTTP/1.0\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert_eq!(requests.borrow().len(), 3);
    });
}

// O19
#[test]
fn endless_interim_answers_end_in_502() {
    run(async |lab| {
        let address = server(|mut stream, _| async move {
            read_head(&mut stream).await;
            while stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").await.is_ok() {}
        })
        .await;
        lab.route_to(&[address]);
        let answer = lab.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        assert!(answer.matches("HTTP/1.1 102 Processing").count() <= 16);
        assert_eq!(answer.matches("HTTP/1.1 502 Bad Gateway").count(), 1);
    });
}

// O19
#[test]
fn bytes_after_the_final_answer_reach_nobody() {
    run(async |lab| {
        let (address, _, n_connections) = canned(
            "HTTP/1.1 100 Continue\r\nContent-Length: 168\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n\
             HTTP/1.1 301 Moved\r\nContent-Length: 0\r\n\r\n",
        )
        .await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        for n in 1..4 {
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            expect(&mut client, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            assert_eq!(n_connections.get(), n, "a connection out of step is not used again");
        }
    });
}

#[test]
fn expectation_is_for_the_server_to_meet() {
    run(async |lab| {
        let address = server(|mut stream, _| async move {
            assert!(read_head(&mut stream).await.unwrap().contains("Expect: 100-continue\r\n"));
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
            expect(&mut stream, "hello").await;
            stream.write_all(OK.as_bytes()).await.unwrap();
        })
        .await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
        client.write_all(head).await.unwrap();
        expect(&mut client, "HTTP/1.1 100 Continue\r\n\r\n").await;
        client.write_all(b"hello").await.unwrap();
        expect(&mut client, OK).await;
    });
}

// O26
#[test]
fn answer_before_the_end_of_the_upload_reaches_the_client() {
    run(async |lab| {
        let address = server(|mut stream, _| async move {
            read_head(&mut stream).await;
            let answer =
                b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig";
            stream.write_all(answer).await.unwrap();
        })
        .await;
        lab.route_to(&[address]);
        for expectation in ["", "Expect: 100-continue\r\n"] {
            let mut client = lab.connect().await;
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{expectation}Content-Length: 28576635\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            if expectation.is_empty() {
                // Writes all of it before it reads, as simple clients do.
                client.write_all(&vec![b'x'; 28_576_635]).await.unwrap();
            }
            let answer = read_to_end(&mut client).await;
            assert!(
                answer.starts_with("HTTP/1.1 413 Content Too Large\r\n") && answer.ends_with("big"),
                "{answer}"
            );
        }
    });
}

// O21
#[test]
fn http_1_0_gets_no_chunks() {
    run(async |lab| {
        let (address, requests, _) = canned(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n0\r\nX: y\r\n\r\n",
        )
        .await;
        lab.route_to(&[address]);
        let answer = lab.ask("GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n").await;
        assert_eq!(answer, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello");
        assert!(requests.borrow()[0].starts_with("GET / HTTP/1.1\r\n"));
    });
}

#[test]
fn http_1_0_may_keep_its_connection() {
    run(async |lab| {
        let (address, ..) = canned(OK).await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        for _ in 0..2 {
            client.write_all(b"GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n").await.unwrap();
            expect(&mut client, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
                .await;
        }
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        assert_eq!(
            read_to_end(&mut client).await,
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
        );
    });
}

#[test]
fn body_until_close_ends_by_close() {
    run(async |lab| {
        let address = server(|mut stream, _| async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nall of it").await.unwrap();
        })
        .await;
        lab.route_to(&[address]);
        let answer = lab.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(answer, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it");
    });
}

// O33
#[test]
fn upgraded_connection_carries_bytes_sent_with_the_request() {
    run(async |lab| {
        let address = server(|mut stream, _| async move {
            let head = read_head(&mut stream).await.unwrap();
            assert!(head.contains("\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"), "{head}");
            let answer =
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst";
            stream.write_all(answer).await.unwrap();
            let (mut reader, mut writer) = stream.split();
            tokio::io::copy(&mut reader, &mut writer).await.unwrap();
            writer.write_all(b"bye").await.unwrap();
        })
        .await;
        lab.route_to(&[address]);
        for _ in 0..200 {
            let mut client = lab.connect().await;
            let request = b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n\
                \x01\x05\x37\x7a\x21\x3d\x7f";
            client.write_all(request).await.unwrap();
            expect(
                &mut client,
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nfirst",
            )
            .await;
            expect(&mut client, "\x01\x05\x37\x7a\x21\x3d\x7f").await;
            client.write_all(b"more").await.unwrap();
            expect(&mut client, "more").await;
            client.shutdown().await.unwrap();
            assert_eq!(read_to_end(&mut client).await, "bye");
        }
    });
}

#[test]
fn upgrade_that_nobody_asked_for_is_502() {
    run(async |lab| {
        let (address, ..) =
            canned("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n").await;
        lab.route_to(&[address]);
        let answer = lab.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    });
}
