//! Filters of rules and backends.

use super::*;
use crate::snapshot::{Filters, HeaderChanges, MessageHeaders, PathChange, Redirect};

fn set(name: &str, value: &str) -> HeaderChanges {
    HeaderChanges::new([], [(name, value)], []).unwrap()
}

fn with_headers(mut found: HttpMatch, request: HeaderChanges, response: HeaderChanges) -> HttpMatch {
    filters(&mut found.rule).headers = MessageHeaders { request, response };
    found
}

#[test]
fn header_filters_of_rule_and_backend_hold_for_request_and_answer() {
    run(async |lab| {
        let (plain, plain_requests, _) =
            canned("HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: 2\r\n\r\nok").await;
        let (own, own_requests, _) = canned(OK).await;
        let (request, response) = (set("x-level", "rule"), set("server", "gateway"));
        let mut backend = endpoints(1, &[own]);
        let headers = MessageHeaders {
            request: request.then(&set("x-level", "backend")),
            response: response.then(&HeaderChanges::new(["server"], [("x-b", "1")], []).unwrap()),
        };
        backend.filters = Some(Arc::new(Filters { headers, ..Filters::default() }));
        let split = Split::new(vec![endpoints(1, &[plain]), backend]);
        let found = with_headers(prefix("", HttpAction::Forward(split)), request, response);
        lab.publish(None, vec![found]);
        let mut client = lab.connect().await;
        let mut answers = Vec::new();
        for _ in 0..6 {
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Level: client\r\n\r\n").await.unwrap();
            let head = read_head(&mut client).await.unwrap();
            expect(&mut client, "ok").await;
            answers.push(head);
        }
        let count = |text: &str| answers.iter().filter(|answer| answer.contains(text)).count();
        assert_eq!((count("server: gateway\r\n"), count("x-b: 1\r\n"), count("Server: s")), (3, 3, 0));
        for (requests, level) in [(plain_requests, "rule"), (own_requests, "backend")] {
            let requests = requests.borrow();
            assert_eq!(requests.len(), 3);
            let expected = format!("x-level: {level}\r\n");
            assert!(
                requests.iter().all(|one| one.contains(&expected) && !one.contains("X-Level")),
                "{requests:?}"
            );
        }
    });
}

#[test]
fn changed_heads_frame_their_bodies_as_before() {
    run(async |lab| {
        let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: 1\r\n\r\n2\r\nok\r\n0\r\n\r\n";
        let (address, requests, _) = canned(answer).await;
        let changes = HeaderChanges::new(["x"], [("y", "2")], []).unwrap();
        lab.publish(None, vec![with_headers(prefix("", forward(&[address])), changes.clone(), changes)]);
        let mut client = lab.connect().await;
        for _ in 0..3 {
            client
                .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nX: 0\r\nContent-Length: 4\r\n\r\nbody")
                .await
                .unwrap();
            expect(
                &mut client,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\ny: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            )
            .await;
        }
        assert!(
            requests.borrow().iter().all(|request| request.ends_with("y: 2\r\n\r\nbody")),
            "{requests:?}"
        );
    });
}

#[test]
fn redirects_are_answered_without_a_backend_and_keep_the_connection() {
    run(async |lab| {
        let redirect = |status, path| {
            let hostname = Some("b.example".into());
            HttpAction::Redirect(Arc::new(Redirect { status, scheme: None, hostname, port: None, path }))
        };
        let path = PathChange::Prefix { matched: "/old".into(), replacement: "/new".into() };
        let with_filter =
            with_headers(prefix("", redirect(302, None)), HeaderChanges::default(), set("x-r", "1"));
        lab.publish(None, vec![prefix("/old", redirect(308, Some(path))), with_filter]);
        let mut client = lab.connect().await;
        client.write_all(b"POST /old/a?q HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").await.unwrap();
        let expected = "HTTP/1.1 308 Permanent Redirect\r\nLocation: http://b.example/new/a?q\r\n\
                        Content-Type: text/plain\r\nContent-Length: 19\r\n\r\nPermanent Redirect\n";
        expect(&mut client, expected).await;
        client
            .write_all(b"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.0\r\nHost: a\r\n\r\n")
            .await
            .unwrap();
        let found = "HTTP/1.1 302 Found\r\nLocation: http://b.example/";
        let rest = "Content-Type: text/plain\r\nContent-Length: 6\r\n\r\n";
        expect(&mut client, &format!("{found}x\r\nx-r: 1\r\n{rest}")).await;
        let close = "Connection: close\r\n";
        expect(&mut client, &format!("{found}\r\nx-r: 1\r\n{close}{rest}Found\n")).await;
        assert_eq!(read_to_end(&mut client).await, "");
        let table = lab.worker.tables.borrow_mut().table(key()).unwrap();
        let host = table.listener(None, "a").unwrap().unwrap().hosts.lookup("a").unwrap().clone();
        let cells = lab.worker.tables.borrow().route_cells(&table, &host.matches()[0].rule);
        assert_eq!(cells.requests[3].value(), 3);
    });
}
