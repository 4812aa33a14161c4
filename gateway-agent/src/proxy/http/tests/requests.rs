//! Heads: what is refused, routed and forwarded.

use tokio::io::AsyncWriteExt;

use super::*;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const GET_CLOSE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[test]
fn request_and_answer_pass_with_only_the_named_changes() {
    run(async |lab| {
        let (address, requests, _) =
            canned("HTTP/1.1 201 Created\r\nX-A: b\r\nKeep-Alive: 5\r\nContent-Length: 3\r\n\r\nabc").await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        client
            .write_all(b"PUT /p?q=1 HTTP/1.1\r\nhost: A:80\r\nX-B: c\r\nContent-Length: 2\r\n\r\nhi")
            .await
            .unwrap();
        expect(&mut client, "HTTP/1.1 201 Created\r\nX-A: b\r\nContent-Length: 3\r\n\r\nabc").await;
        assert_eq!(
            without_id(&requests.borrow()[0]),
            "PUT /p?q=1 HTTP/1.1\r\nhost: A:80\r\nX-B: c\r\nContent-Length: 2\r\nX-Forwarded-For: 127.0.0.1\r\n\
             X-Forwarded-Proto: http\r\nX-Forwarded-Host: A:80\r\nX-Forwarded-Port: 80\r\n\r\nhi"
        );
    });
}

#[test]
fn head_may_be_cut_at_every_byte() {
    run(async |lab| {
        let (address, ..) = canned(OK).await;
        lab.route_to(&[address]);
        for cut in 1..GET.len() {
            let mut client = lab.connect().await;
            client.set_nodelay(true).unwrap();
            client.write_all(&GET.as_bytes()[..cut]).await.unwrap();
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            client.write_all(&GET.as_bytes()[cut..]).await.unwrap();
            expect(&mut client, OK).await;
        }
    });
}

#[test]
fn what_is_no_request_is_refused_with_its_status() {
    run(async |lab| {
        let (address, requests, _) = canned(OK).await;
        lab.route_to(&[address]);
        let long_line = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(16 * 1024));
        let large = format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "a".repeat(64 * 1024));
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(300));
        for (request, status) in [
            ("\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03", 400),
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\nHost: a\n\n", 400),
            ("GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 501),
            ("PRI * HTTP/2.0\r\nHost: a\r\n\r\n", 505),
            ("POST / HTTP/1.1\r\nHost: a\r\nExpect: x\r\nContent-Length: 1\r\n\r\n", 417),
            (&long_line, 414),
            (&large, 431),
            (&many, 431),
        ] {
            let answer = lab.ask(request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.40} {answer}");
            assert!(answer.contains("Connection: close\r\n"));
        }
        assert!(requests.borrow().is_empty());
    });
}

// O25
#[test]
fn large_heads_pass_within_the_limits() {
    run(async |lab| {
        let (address, requests, _) = canned(OK).await;
        lab.route_to(&[address]);
        let fields: String = (0..150).map(|n| format!("X-{n}: {}\r\n", "v".repeat(350))).collect();
        let mut client = lab.connect().await;
        client.write_all(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes()).await.unwrap();
        expect(&mut client, OK).await;
        assert!(requests.borrow()[0].contains(&fields));
    });
}

// O16
#[test]
fn hidden_request_never_reaches_a_server() {
    run(async |lab| {
        let (address, requests, _) = canned(OK).await;
        lab.route_to(&[address]);
        for fields in [
            "Content-Length: 13\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 13",
            "Content-Length: 46\r\nContent-Length: 0",
            "Content-Length: +5",
            "Transfer-Encoding : chunked",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        ] {
            let hidden = "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n";
            let answer =
                lab.ask(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n0\r\n\r\n{hidden}")).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{fields}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1").count(), 1);
        }
        assert!(requests.borrow().is_empty());
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    run(async |lab| {
        let address = server(|mut stream, _| async move {
            while let Some(request) = read_request(&mut stream).await {
                let path = request.split(' ').nth(1).unwrap();
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        })
        .await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        let requests: String = (0..50)
            .map(|n| match n % 3 {
                0 => format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n"),
                1 => format!("POST /{n} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"),
                _ => format!("\r\nGET /{n} HTTP/1.1\r\nHost: a\r\n\r\n"),
            })
            .collect();
        client.write_all(requests.as_bytes()).await.unwrap();
        for n in 0..50 {
            let path = format!("/{n}");
            expect(&mut client, &format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()))
                .await;
        }
    });
}

#[test]
fn unroutable_requests_get_their_status_and_keep_the_connection() {
    run(async |lab| {
        let invalid = WeightedBackend::new(1, Backend::Invalid);
        lab.publish(
            Some("known.example"),
            vec![
                prefix("/invalid", HttpAction::Forward(Split::new(vec![invalid]))),
                prefix("/none", HttpAction::Forward(Split::new(Vec::new()))),
                prefix("/zero", HttpAction::Forward(Split::new(vec![endpoints(0, &[])]))),
                prefix("/empty", forward(&[])),
                prefix("/teapot", HttpAction::Respond(418)),
            ],
        );
        let mut client = lab.connect().await;
        for (host, path, status) in [
            ("known.example", "/", 404),
            ("known.example.:8080", "/invalid", 500),
            ("KNOWN.example", "/none", 500),
            ("known.example", "/zero/", 500),
            ("known.example", "/empty/x", 503),
            ("known.example", "/teapot", 418),
            ("other.example", "/empty", 404),
            ("[::1]:80", "/", 404),
        ] {
            for request in [
                format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
                format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\nhi"),
            ] {
                client.write_all(request.as_bytes()).await.unwrap();
                let head = read_head(&mut client).await.unwrap();
                assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{request} {head}");
                let length: usize = head
                    .split("Content-Length: ")
                    .nth(1)
                    .unwrap()
                    .split("\r\n")
                    .next()
                    .unwrap()
                    .parse()
                    .unwrap();
                client.read_exact(&mut vec![0; length]).await.unwrap();
            }
        }
        client.write_all(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        expect(&mut client, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        let cells = lab.metrics.route(&route_name());
        assert_eq!(cells.requests[5].value(), 0, "a worker has cells of its own");
    });
}

// O22, O24
#[test]
fn server_sees_the_path_that_was_matched() {
    run(async |lab| {
        let (alpha, to_alpha, _) = canned(OK).await;
        let (beta, to_beta, _) = canned(OK).await;
        lab.publish(Some("h"), vec![prefix("/alpha", forward(&[alpha])), prefix("/beta", forward(&[beta]))]);
        let mut client = lab.connect().await;
        for target in ["/alpha/api/../../beta/api/echo", "/alpha/%2e%2e/beta", "http://h/beta?x", "/%62eta/."]
        {
            client.write_all(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).await.unwrap();
            expect(&mut client, OK).await;
        }
        let paths: Vec<_> =
            to_beta.borrow().iter().map(|request| request.split(' ').nth(1).unwrap().to_owned()).collect();
        assert_eq!(paths, ["/beta/api/echo", "/beta", "/beta?x", "/beta/"]);
        assert!(to_alpha.borrow().is_empty());
        assert!(
            lab.ask("GET /alphabet HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.contains(" 404 ")
        );
    });
}

#[test]
fn shares_follow_the_weights() {
    run(async |lab| {
        let (one, to_one, _) = canned(OK).await;
        let (two, to_two, _) = canned(OK).await;
        let invalid = WeightedBackend::new(1, Backend::Invalid);
        let split = Split::new(vec![endpoints(6, &[one]), endpoints(3, &[two]), invalid, endpoints(0, &[])]);
        lab.publish(None, vec![prefix("", HttpAction::Forward(split))]);
        let mut n_invalid = 0;
        for _ in 0..100 {
            n_invalid += usize::from(lab.ask(GET_CLOSE).await.contains(" 500 "));
        }
        for (count, expected) in [(to_one.borrow().len(), 60), (to_two.borrow().len(), 30), (n_invalid, 10)] {
            assert!(count.abs_diff(expected) <= 3, "{count} instead of {expected}");
        }
    });
}

#[test]
fn cells_count_requests_by_class_and_bytes_of_the_client() {
    run(async |lab| {
        let (address, ..) = canned(OK).await;
        lab.route_to(&[address]);
        let mut client = lab.connect().await;
        client.write_all(GET.as_bytes()).await.unwrap();
        expect(&mut client, OK).await;
        let table = lab.worker.tables.borrow_mut().table(key()).unwrap();
        let host = table.listener(None, "a").unwrap().unwrap().hosts.lookup("a").unwrap().clone();
        let route = lab.worker.tables.borrow().route_cells(&table, &host.matches()[0].rule);
        let listener = lab.worker.tables.borrow().listener_cells(&table, None).unwrap();
        until(|| route.requests[2].value() == 1).await;
        assert_eq!(route.durations.count(), 1);
        assert_eq!(route.sent_bytes.value(), OK.len() as u64);
        assert_eq!(listener.received_bytes.value(), GET.len() as u64);
        assert_eq!(listener.sent_bytes.value(), OK.len() as u64);
        assert_eq!((listener.connections.value(), listener.connections_active.value()), (1, 1));
        drop(client);
        until(|| listener.connections_active.value() == 0).await;
    });
}
