//! Clients of HTTP/2 that write their own frames.

use super::*;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

const PROTOCOL_ERROR: u32 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;

/// A connection whose frames the test makes.
struct Raw {
    stream: TcpStream,
}

#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    id: u32,
    payload: Vec<u8>,
}

fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = length[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(id.to_be_bytes());
    out.extend(payload);
    out
}

/// Literal fields, none of them indexed (RFC 7541 section 6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            // A prefix of seven bits, and what is beyond it in further bytes.
            let length = text.len();
            if length < 127 {
                out.push(u8::try_from(length).unwrap());
            } else {
                out.push(127);
                let mut rest = length - 127;
                while rest >= 128 {
                    out.push(u8::try_from(rest % 128 + 128).unwrap());
                    rest /= 128;
                }
                out.push(u8::try_from(rest).unwrap());
            }
            out.extend(text.as_bytes());
        }
    }
    out
}

const PSEUDO: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":authority", "a.example"), (":path", "/")];

fn with(fields: &[(&str, &str)]) -> Vec<u8> {
    block(&[&PSEUDO, fields].concat())
}

impl Raw {
    async fn open(lab: &Lab) -> Self {
        let mut raw = Self { stream: lab.connect().await };
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        raw.send(&frame(SETTINGS, 0, 0, &[])).await;
        raw
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// As much as the proxy takes; false where it has closed.
    async fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// `None`: closed.
    async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let id = u32::from_be_bytes(head[5..].try_into().unwrap());
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some(Frame { kind: head[3], flags: head[4], id, payload })
    }

    /// The next frame that is about a stream, or the end of the connection.
    async fn outcome(&mut self) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.id != 0 || frame.kind == GOAWAY {
                return Some(frame);
            }
        }
    }

    /// Reads to GOAWAY and gives its code.
    async fn goaway(&mut self) -> u32 {
        loop {
            let frame = self.next().await.expect("GOAWAY before the end");
            if frame.kind == GOAWAY {
                return u32::from_be_bytes(frame.payload[4..8].try_into().unwrap());
            }
        }
    }
}

fn code(frame: &Frame) -> u32 {
    u32::from_be_bytes(frame.payload[..4].try_into().unwrap())
}

/// The two digits behind the first of `:status`, from what the encoder makes of the statuses used here.
fn is_status(frame: &Frame, status: &str) -> bool {
    let indexed = match status {
        "200" => 0x88,
        "204" => 0x89,
        "400" => 0x8c,
        "404" => 0x8d,
        "500" => 0x8e,
        _ => 0,
    };
    frame.kind == HEADERS && frame.payload.first() == Some(&indexed)
}

/// Requests of which no part may reach a server.
fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("transfer-encoding", with(&[("transfer-encoding", "chunked")])),
        ("connection", with(&[("connection", "keep-alive")])),
        ("connection naming a field", with(&[("connection", "x-a"), ("x-a", "1")])),
        ("keep-alive", with(&[("keep-alive", "timeout=5")])),
        ("proxy-connection", with(&[("proxy-connection", "close")])),
        ("upgrade", with(&[("upgrade", "h2c")])),
        ("te other than trailers", with(&[("te", "gzip")])),
        ("te with more than trailers", with(&[("te", "trailers, chunked")])),
        ("name in capitals", with(&[("X-A", "1")])),
        ("name with a colon", with(&[("x-a:b", "1")])),
        ("name with a space", with(&[("x a", "1")])),
        ("name with a line end", with(&[("x\r\ny", "1")])),
        ("empty name", with(&[("", "1")])),
        ("line end in a value", with(&[("x-a", "1\r\ntransfer-encoding: chunked")])),
        ("line feed in a value", with(&[("x-a", "1\nx: y")])),
        ("carriage return in a value", with(&[("x-a", "1\rx: y")])),
        ("NUL in a value", with(&[("x-a", "1\0")])),
        ("pseudo-field behind a field", block(&[&PSEUDO[..3], &[("x-a", "1")], &PSEUDO[3..]].concat())),
        ("pseudo-field twice", with(&[(":path", "/b")])),
        ("unknown pseudo-field", with(&[(":x", "1")])),
        ("status", with(&[(":status", "200")])),
        ("protocol", with(&[(":protocol", "websocket")])),
        ("no path", block(&PSEUDO[..3])),
        ("no method", block(&PSEUDO[1..])),
        ("no scheme", block(&[PSEUDO[0], PSEUDO[2], PSEUDO[3]])),
        ("empty path", block(&[PSEUDO[0], PSEUDO[1], PSEUDO[2], (":path", "")])),
        ("path without a slash", block(&[PSEUDO[0], PSEUDO[1], PSEUDO[2], (":path", "a")])),
        ("absolute path", block(&[PSEUDO[0], PSEUDO[1], PSEUDO[2], (":path", "http://b/")])),
        ("asterisk", block(&[PSEUDO[0], PSEUDO[1], PSEUDO[2], (":path", "*")])),
        ("space in the path", block(&[PSEUDO[0], PSEUDO[1], PSEUDO[2], (":path", "/ HTTP/1.1\r\nx: y")])),
        ("hidden dot segment", block(&[PSEUDO[0], PSEUDO[1], PSEUDO[2], (":path", "/a%2f..%2fb")])),
        ("NUL in the path", block(&[PSEUDO[0], PSEUDO[1], PSEUDO[2], (":path", "/%00")])),
        (
            "space in the method",
            block(&[(":method", "GET /x HTTP/1.1\r\n"), PSEUDO[1], PSEUDO[2], PSEUDO[3]]),
        ),
        ("another scheme", block(&[PSEUDO[0], (":scheme", "ftp"), PSEUDO[2], PSEUDO[3]])),
        ("empty authority", block(&[PSEUDO[0], PSEUDO[1], (":authority", ""), PSEUDO[3]])),
        ("authority with a path", block(&[PSEUDO[0], PSEUDO[1], (":authority", "a/b"), PSEUDO[3]])),
        ("authority with a user", block(&[PSEUDO[0], PSEUDO[1], (":authority", "u@a"), PSEUDO[3]])),
        ("authority with a line end", block(&[PSEUDO[0], PSEUDO[1], (":authority", "a\r\nx: y"), PSEUDO[3]])),
        ("another host", with(&[("host", "b.example")])),
        ("two hosts", with(&[("host", "a.example"), ("host", "a.example")])),
        ("length that is no number", with(&[("content-length", "+5")])),
        ("negative length", with(&[("content-length", "-1")])),
        ("empty length", with(&[("content-length", "")])),
        ("list of lengths", with(&[("content-length", "0, 0")])),
        ("two lengths", with(&[("content-length", "0"), ("content-length", "1")])),
        ("length twice", with(&[("content-length", "0"), ("content-length", "0")])),
        ("length without a body", with(&[("content-length", "5")])),
        ("huge length", with(&[("content-length", "18446744073709551617")])),
        ("expectation", with(&[("expect", "something")])),
    ]
}

// O16, O32
#[test]
fn fields_that_http_1_would_read_in_another_way_never_reach_a_server() {
    run(async |lab| {
        let (address, requests, _) = canned(OK).await;
        lab.route_to(&[address]);
        let mut raw = Raw::open(lab).await;
        let mut id = 1;
        for (what, block) in malformed() {
            raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, id, &block)).await;
            let outcome = raw.outcome().await.unwrap_or_else(|| panic!("{what}: closed"));
            if outcome.kind == GOAWAY {
                // The codec takes names that cannot be for an error of the compression.
                assert_eq!(
                    u32::from_be_bytes(outcome.payload[4..8].try_into().unwrap()),
                    PROTOCOL_ERROR,
                    "{what}"
                );
                (raw, id) = (Raw::open(lab).await, 1);
                continue;
            }
            // Refused by an answer, or as malformed; the connection lives on.
            let is_refused = match outcome.kind {
                RST_STREAM => code(&outcome) == PROTOCOL_ERROR,
                HEADERS => is_status(&outcome, "400") || what == "expectation",
                _ => false,
            };
            assert!(is_refused, "{what}: {outcome:?}");
            assert_eq!(outcome.id, id, "{what}");
            if outcome.kind == HEADERS && outcome.flags & END_STREAM == 0 {
                while raw.outcome().await.is_some_and(|frame| frame.flags & END_STREAM == 0) {}
            }
            id += 2;
        }
        assert_eq!(requests.borrow().as_slice(), [""; 0]);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, id, &with(&[]))).await;
        assert!(is_status(&raw.outcome().await.unwrap(), "200"));
        assert_eq!(requests.borrow().len(), 1);
    });
}

// O16
#[test]
fn body_that_is_not_as_long_as_announced_ends_the_stream_and_the_connection_behind() {
    run(async |lab| {
        let (address, requests, _) = canned(OK).await;
        lab.route_to(&[address]);
        for body in ["", "GET", "GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"] {
            let mut raw = Raw::open(lab).await;
            raw.send(&frame(HEADERS, END_HEADERS, 1, &with(&[("content-length", "5")]))).await;
            raw.send(&frame(DATA, END_STREAM, 1, body.as_bytes())).await;
            let outcome = raw.outcome().await.unwrap();
            assert_eq!((outcome.kind, code(&outcome)), (RST_STREAM, PROTOCOL_ERROR), "{body}");
        }
        // Whatever came of them, no server has taken a whole request out of it.
        let (first, ..) = canned(OK).await;
        lab.route_to(&[first]);
        assert!(requests.borrow().iter().all(|request| !request.contains("/admin")), "{requests:?}");
    });
}

// O16
#[test]
fn trailers_cannot_change_what_was_routed() {
    run(async |lab| {
        let seen = Rc::new(RefCell::new(String::new()));
        let all = seen.clone();
        let address = server(move |mut stream, _| {
            let all = all.clone();
            async move {
                while !all.borrow().ends_with("0\r\n\r\n") {
                    let byte = stream.read_u8().await.unwrap();
                    all.borrow_mut().push(char::from(byte));
                }
                stream.write_all(OK.as_bytes()).await.unwrap();
            }
        })
        .await;
        lab.route_to(&[address]);
        let mut raw = Raw::open(lab).await;
        raw.send(&frame(HEADERS, END_HEADERS, 1, &with(&[]))).await;
        raw.send(&frame(DATA, 0, 1, b"x")).await;
        let trailers = block(&[("host", "b"), ("content-length", "9"), ("authorization", "x")]);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers)).await;
        assert!(is_status(&raw.outcome().await.unwrap(), "200"));
        assert!(seen.borrow().ends_with("1\r\nx\r\n0\r\n\r\n"), "{}", seen.borrow());
    });
}

// O28
#[test]
fn requests_that_are_reset_at_once_end_the_connection() {
    run(async |lab| {
        let (address, requests, _) = canned(OK).await;
        lab.route_to(&[address]);
        let mut raw = Raw::open(lab).await;
        for id in (1..40_001).step_by(2) {
            let mut frames = frame(HEADERS, END_HEADERS | END_STREAM, id, &with(&[]));
            frames.extend(frame(RST_STREAM, 0, id, &8_u32.to_be_bytes()));
            if !raw.try_send(&frames).await {
                break;
            }
        }
        // A reset may have come before it was read.
        loop {
            match raw.next().await {
                Some(frame) if frame.kind == GOAWAY => {
                    let code = u32::from_be_bytes(frame.payload[4..8].try_into().unwrap());
                    assert_eq!(code, ENHANCE_YOUR_CALM);
                    break;
                }
                Some(_) => {}
                None => break,
            }
        }
        assert!(requests.borrow().len() < 1000, "{}", requests.borrow().len());
        until(|| lab.worker.cells.http2_floods.value() == 1).await;
        let (head, ..) = http2::ask(&mut http2::open(lab).await, http2::get("/")).await;
        assert_eq!(head.status(), 200);
    });
}

// O28: a client that waits for each request to be looked at before it cancels it.
#[test]
fn requests_that_are_cancelled_one_by_one_end_the_connection_too() {
    run(async |lab| {
        let n_asked = Rc::new(Cell::new(0));
        let asked = n_asked.clone();
        let address = server(move |mut stream, _| {
            let asked = asked.clone();
            async move {
                read_head(&mut stream).await;
                asked.set(asked.get() + 1);
                read_to_end(&mut stream).await;
            }
        })
        .await;
        lab.route_to(&[address]);
        let mut raw = Raw::open(lab).await;
        let mut id = 1;
        loop {
            let before = n_asked.get();
            if !raw.try_send(&frame(HEADERS, END_HEADERS | END_STREAM, id, &with(&[]))).await {
                break;
            }
            let looked_at = async { until(|| n_asked.get() > before).await };
            tokio::select! {
                () = looked_at => {}
                code = raw.goaway() => {
                    assert_eq!(code, ENHANCE_YOUR_CALM);
                    break;
                }
            }
            assert!(id < 2 * 400, "never told to calm down");
            if !raw.try_send(&frame(RST_STREAM, 0, id, &8_u32.to_be_bytes())).await {
                break;
            }
            id += 2;
        }
        until(|| lab.worker.cells.http2_floods.value() == 1).await;
    });
}

// O28
#[test]
fn header_block_without_an_end_ends_the_connection() {
    run(async |lab| {
        lab.route_to(&[refusing().await]);
        let mut raw = Raw::open(lab).await;
        raw.send(&frame(HEADERS, 0, 1, &with(&[]))).await;
        let piece = frame(CONTINUATION, 0, 1, &block(&[("x-a", &"a".repeat(1000))]));
        let mut n_sent = 0;
        while raw.try_send(&piece).await {
            n_sent += piece.len();
            assert!(n_sent < 64 * 1024 * 1024, "taken without end");
            tokio::task::yield_now().await;
        }
        // Those of a field each, of next to nothing.
        let mut raw = Raw::open(lab).await;
        raw.send(&frame(HEADERS, 0, 1, &with(&[]))).await;
        let empty = frame(CONTINUATION, 0, 1, &[]);
        let mut n_sent = 0;
        while raw.try_send(&empty).await {
            n_sent += 1;
            assert!(n_sent < 1_000_000, "taken without end");
            tokio::task::yield_now().await;
        }
    });
}

// O25, O28: fields that the table repeats cost the client a byte each.
#[test]
fn header_lists_beyond_the_bound_are_refused_also_where_they_are_small_on_the_wire() {
    run(async |lab| {
        let (address, requests, _) = canned(OK).await;
        lab.route_to(&[address]);
        let mut raw = Raw::open(lab).await;
        // With incremental indexing: a field of 4000 bytes in the table, then references to it (index 62).
        let mut bomb = with(&[]);
        bomb.push(0x40);
        bomb.extend([1, b'x', 127]);
        let rest = 4000 - 127;
        bomb.extend([u8::try_from(rest % 128 + 128).unwrap(), u8::try_from(rest / 128).unwrap()]);
        bomb.extend([b'a'; 4000]);
        let mut modest = bomb.clone();
        modest.extend([0x80 | 62; 20]);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &modest)).await;
        let outcome = raw.outcome().await.unwrap();
        assert!(outcome.kind == HEADERS && !is_status(&outcome, "200"), "{outcome:?}");
        // Far beyond it is an attack.
        let mut raw = Raw::open(lab).await;
        bomb.extend([0x80 | 62; 10_000]);
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb)).await;
        assert_eq!(raw.goaway().await, ENHANCE_YOUR_CALM);
        // So many fields that each is small.
        let mut raw = Raw::open(lab).await;
        let many: Vec<(&str, &str)> = vec![("x", "1"); 300];
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &with(&many))).await;
        let outcome = raw.outcome().await.unwrap();
        assert!(outcome.kind == HEADERS && !is_status(&outcome, "200"), "{outcome:?}");
        assert!(requests.borrow().is_empty());
    });
}

/// Sends `frame` without end and without reading; the proxy stops reading when its answers do not get through.
async fn flood(lab: &Lab, frame: &[u8]) {
    let mut raw = Raw::open(lab).await;
    let many = frame.repeat(1000);
    let mut n_sent = 0;
    loop {
        match tokio::time::timeout(Duration::from_millis(500), raw.stream.write_all(&many)).await {
            Ok(Ok(())) => n_sent += many.len(),
            // Held up, or ended.
            Ok(Err(_)) | Err(_) => break,
        }
        assert!(n_sent < 64 * 1024 * 1024, "the proxy takes them in without end");
    }
    // Others are served meanwhile.
    let (head, ..) = http2::ask(&mut http2::open(lab).await, http2::get("/")).await;
    assert_eq!(head.status(), 200);
}

// O28
#[test]
fn floods_of_pings_and_settings_are_not_hoarded() {
    run(async |lab| {
        let (address, ..) = canned(OK).await;
        lab.route_to(&[address]);
        flood(lab, &frame(PING, 0, 0, &[0; 8])).await;
        flood(lab, &frame(SETTINGS, 0, 0, &[])).await;
    });
}

// O28
#[test]
fn empty_data_frames_without_end_end_the_connection() {
    run(async |lab| {
        let address = server(|stream, _| async move {
            std::future::pending::<()>().await;
            drop(stream);
        })
        .await;
        lab.route_to(&[address]);
        let mut raw = Raw::open(lab).await;
        raw.send(&frame(HEADERS, END_HEADERS, 1, &with(&[]))).await;
        let many = frame(DATA, 0, 1, &[]).repeat(1000);
        let mut n_sent = 0;
        while raw.try_send(&many).await {
            n_sent += 1000;
            assert!(n_sent < 10_000_000, "taken without end");
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn more_streams_than_allowed_are_refused_and_the_others_served() {
    run(async |lab| {
        let go = Rc::new(Cell::new(false));
        let gate = go.clone();
        let address = server(move |mut stream, _| {
            let gate = gate.clone();
            async move {
                read_head(&mut stream).await;
                until(|| gate.get()).await;
                stream.write_all(OK.as_bytes()).await.unwrap();
            }
        })
        .await;
        lab.route_to(&[address]);
        let mut raw = Raw::open(lab).await;
        for n in 0..130 {
            raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &with(&[]))).await;
        }
        for id in [257, 259] {
            let outcome = raw.outcome().await.unwrap();
            assert_eq!((outcome.kind, outcome.id, code(&outcome)), (RST_STREAM, id, 7));
        }
        go.set(true);
        let mut n_served = 0;
        while n_served < 128 {
            n_served += usize::from(is_status(&raw.outcome().await.unwrap(), "200"));
        }
    });
}

#[test]
fn preface_that_breaks_off_or_goes_wrong_ends_the_connection() {
    run_paused(async |lab| {
        lab.route_to(&[refusing().await]);
        let mut broken = lab.connect().await;
        broken.write_all(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n").await.unwrap();
        let mut all = Vec::new();
        broken.read_to_end(&mut all).await.ok();
        let mut silent = lab.connect().await;
        silent.write_all(b"PRI * HTTP/2.0\r\n\r\n").await.unwrap();
        // The proxy's own settings come before its end.
        silent.read_to_end(&mut all).await.ok();
        // Not at the beginning it is a request that no version has.
        let mut late = lab.connect().await;
        late.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let answers = read_to_end(&mut late).await;
        assert!(answers.contains("502 ") && answers.contains("\r\n\r\n") && !answers.contains("h2"));
        assert!(answers.contains("HTTP/1.1 505 ") || answers.contains("HTTP/1.1 400 "), "{answers}");
    });
}

#[test]
fn settings_are_acknowledged() {
    run(async |lab| {
        let mut raw = Raw::open(lab).await;
        let mut is_acknowledged = false;
        while !is_acknowledged {
            let frame = raw.next().await.unwrap();
            is_acknowledged = frame.kind == SETTINGS && frame.flags & ACK != 0;
        }
    });
}

/// Ready when the proxy has closed.
async fn closed(raw: &mut Raw) {
    while raw.next().await.is_some() {}
}

// O28: a client that makes the proxy reset what it has opened itself never sends RST_STREAM (CVE-2025-8671).
#[test]
fn streams_that_the_proxy_has_to_reset_end_the_connection() {
    run(async |lab| {
        let n_asked = Rc::new(Cell::new(0));
        let asked = n_asked.clone();
        let address = server(move |mut stream, _| {
            asked.set(asked.get() + 1);
            async move { drop(read_to_end(&mut stream).await) }
        })
        .await;
        lab.route_to(&[address]);
        let mut raw = Raw::open(lab).await;
        for id in (1..20_001).step_by(2) {
            let mut frames = frame(HEADERS, END_HEADERS, id, &with(&[]));
            // A window beyond 2^31-1 is an error of the stream (RFC 9113 section 6.9.1).
            frames.extend(frame(WINDOW_UPDATE, 0, id, &0x7fff_ffff_u32.to_be_bytes()));
            if !raw.try_send(&frames).await {
                break;
            }
            assert!(id < 20_000, "taken without end");
            tokio::task::yield_now().await;
        }
        until(|| lab.worker.cells.http2_floods.value() == 1).await;
        assert!(n_asked.get() < 1000, "{}", n_asked.get());
        let (ok, ..) = canned(OK).await;
        lab.route_to(&[ok]);
        assert_eq!(http2::ask(&mut http2::open(lab).await, http2::get("/")).await.0.status(), 200);
    });
}

// O04
#[test]
fn header_block_that_stalls_costs_a_connection_for_a_bounded_time() {
    run_paused(async |lab| {
        lab.route_to(&[refusing().await]);
        let mut raw = Raw::open(lab).await;
        raw.send(&frame(HEADERS, 0, 1, &with(&[]))).await;
        let start = tokio::time::Instant::now();
        closed(&mut raw).await;
        assert!(start.elapsed() < Duration::from_secs(120), "{:?}", start.elapsed());
    });
}

#[test]
fn body_that_stalls_ends_its_stream_and_a_window_that_stays_shut_its_answer() {
    run_paused(async |lab| {
        let silent = server(|mut stream, _| async move { drop(read_to_end(&mut stream).await) }).await;
        let large = server(|mut stream, _| async move {
            read_head(&mut stream).await;
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n{}", "x".repeat(300_000));
            drop(stream.write_all(answer.as_bytes()).await);
            drop(read_to_end(&mut stream).await);
        })
        .await;
        lab.publish(None, vec![prefix("/up", forward(&[silent])), prefix("", forward(&[large]))]);
        let mut raw = Raw::open(lab).await;
        let start = tokio::time::Instant::now();
        let up = block(&[PSEUDO[0], PSEUDO[1], PSEUDO[2], (":path", "/up")]);
        raw.send(&frame(HEADERS, END_HEADERS, 1, &up)).await;
        raw.send(&frame(DATA, 0, 1, b"some")).await;
        // Of this answer the client takes 65,535 bytes, which is what it may be sent unasked.
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &with(&[]))).await;
        let mut ended = Vec::new();
        while ended.len() < 2 {
            let frame = raw.outcome().await.expect("streams end one by one");
            if frame.kind == RST_STREAM || (frame.kind != GOAWAY && frame.flags & END_STREAM != 0) {
                ended.push(frame.id);
            }
        }
        ended.sort_unstable();
        assert_eq!(ended, [1, 3]);
        assert!(start.elapsed() < Duration::from_secs(180), "{:?}", start.elapsed());
    });
}

// O23, O24, O32
#[test]
fn authority_and_path_have_the_normal_forms_of_the_other_version() {
    run(async |lab| {
        let (address, requests, _) = canned(OK).await;
        lab.publish(Some("a.example"), vec![prefix("/b", forward(&[address]))]);
        let mut raw = Raw::open(lab).await;
        let (mut id, mut n_served) = (1, 0);
        for (authority, path, is_served) in [
            ("a.example", "/b", true),
            ("A.Example:8080", "/b", true),
            ("a.example.", "/x/../b", true),
            ("a.example", "/%62/./", true),
            ("b.example", "/b", false),
            ("a.example", "/b/../x", false),
            ("a.example", "/b/%2e%2e/x", false),
        ] {
            let asked = block(&[PSEUDO[0], PSEUDO[1], (":authority", authority), (":path", path)]);
            raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, id, &asked)).await;
            let answer = raw.outcome().await.unwrap();
            assert!(
                is_status(&answer, if is_served { "200" } else { "404" }),
                "{authority}{path}: {answer:?}"
            );
            if answer.flags & END_STREAM == 0 {
                while raw.outcome().await.unwrap().flags & END_STREAM == 0 {}
            }
            n_served += usize::from(is_served);
            assert_eq!(requests.borrow().len(), n_served);
            if is_served {
                let seen = requests.borrow()[n_served - 1].clone();
                assert!(
                    seen.starts_with("POST /b HTTP/1.1\r\n") || seen.starts_with("POST /b/ HTTP/1.1\r\n"),
                    "{seen}"
                );
                assert!(seen.contains(&format!("host: {authority}\r\n")), "{seen}");
            }
            id += 2;
        }
    });
}
