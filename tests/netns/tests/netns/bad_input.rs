//! HTTP clients and backends that misbehave.

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use lab::client::{connect, get};
use lab::http::{exchange, read_response};
use lab::servers::{HttpServer, TcpServer, any};
use lab::{Agent, AgentOptions, Datapath, Family, Lab, eventually};

use crate::bed::routed;
use crate::http::{identities, serve_http};

fn serve_one(lab: &Lab) -> Result<Agent> {
    serve_http(lab, 1, &[("route", &[], &[("", &[("web-1", 80, 1)])])])?;
    Agent::start(lab, &AgentOptions::new(Datapath::Userspace))
}

#[test]
fn request_heads_may_arrive_in_any_two_pieces() {
    routed(1, |lab| {
        let _servers = identities(lab, 1)?;
        let _agent = serve_one(lab)?;
        let request =
            b"POST /cut?q=1 HTTP/1.1\r\nHost: any\r\nX-Long: some value\r\nContent-Length: 5\r\n\r\nhello";
        for family in Family::BOTH {
            // All first pieces go out before any second one: the proxy has read them by then.
            let mut streams = Vec::new();
            for cut in 1..request.len() {
                let mut stream = connect(lab.client(), lab.at_gateway(family, 80))?;
                stream.write_all(&request[..cut])?;
                streams.push((stream, cut));
            }
            for (mut stream, cut) in streams {
                let response =
                    exchange(&mut stream, &request[cut..]).with_context(|| format!("{family}, cut {cut}"))?;
                ensure!(
                    response.text() == "web-1 POST /cut?q=1\n",
                    "{family}, cut {cut}: {:?}",
                    response.text()
                );
            }
        }
        Ok(())
    });
}

#[test]
fn request_heads_may_arrive_byte_by_byte() {
    routed(1, |lab| {
        let _servers = identities(lab, 1)?;
        let _agent = serve_one(lab)?;
        let mut stream = connect(lab.client(), lab.at_gateway(Family::V6, 80))?;
        for byte in b"GET /slow HTTP/1.1\r\nHost: any\r\n\r\n" {
            stream.write_all(&[*byte])?;
        }
        let response = read_response(&mut stream, &mut Vec::new())?;
        ensure!(response.text() == "web-1 GET /slow\n", "{:?}", response.text());
        Ok(())
    });
}

#[test]
fn head_that_is_too_large_is_answered_431() {
    routed(1, |lab| {
        let server = HttpServer::identity(lab.backend(1), 8080, "web-1")?;
        let _agent = serve_one(lab)?;
        for family in Family::BOTH {
            let mut stream = connect(lab.client(), lab.at_gateway(family, 80))?;
            let mut request = b"GET / HTTP/1.1\r\nHost: any\r\n".to_vec();
            for number in 0..20_000 {
                request.extend(format!("X-{number}: {}\r\n", "v".repeat(40)).into_bytes());
            }
            request.extend(b"\r\n");
            // The answer may come, and the connection close, before all is sent.
            let sent = stream.write_all(&request);
            let response = read_response(&mut stream, &mut Vec::new());
            match (sent, response) {
                (_, Ok(response)) => ensure!(response.status == 431, "status {}", response.status),
                (sent, Err(error)) => bail!("no answer ({sent:?}): {error:#}"),
            }
        }
        ensure!(server.requests().is_empty(), "the backend saw the request");
        ensure!(
            get(lab.client(), lab.at_gateway(Family::V4, 80), "any", "/")?.status == 200,
            "not served after that"
        );
        Ok(())
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    routed(1, |lab| {
        let _servers = identities(lab, 1)?;
        let _agent = serve_one(lab)?;
        for family in Family::BOTH {
            let mut stream = connect(lab.client(), lab.at_gateway(family, 80))?;
            let mut all = Vec::new();
            for number in 0..50 {
                if number % 3 == 0 {
                    all.extend(
                        format!("POST /{number} HTTP/1.1\r\nHost: any\r\nContent-Length: 4\r\n\r\nbody")
                            .into_bytes(),
                    );
                } else {
                    all.extend(format!("GET /{number} HTTP/1.1\r\nHost: any\r\n\r\n").into_bytes());
                }
            }
            stream.write_all(&all)?;
            let mut buffered = Vec::new();
            for number in 0..50 {
                let response =
                    read_response(&mut stream, &mut buffered).with_context(|| format!("answer {number}"))?;
                let method = if number % 3 == 0 { "POST" } else { "GET" };
                ensure!(
                    response.text() == format!("web-1 {method} /{number}\n"),
                    "{number}: {:?}",
                    response.text()
                );
            }
        }
        Ok(())
    });
}

/// O16, O18, and what is no HTTP at all: 400, and the backend sees nothing of it.
#[test]
fn ambiguous_or_broken_requests_are_refused() {
    routed(1, |lab| {
        let server = HttpServer::identity(lab.backend(1), 8080, "web-1")?;
        let _agent = serve_one(lab)?;
        let cases: [&[u8]; 13] = [
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 13\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: a\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 46\r\nContent-Length: 0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked, identity\r\n\r\n0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n 2\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX-A: \0\r\n\r\n",
            b"\x16\x03\x01\x00\x05hello\r\n\r\n",
            b"GET\r\n\r\n",
            b"\0\0\0\0\r\n\r\n",
        ];
        for case in cases {
            let shown = String::from_utf8_lossy(case).into_owned();
            let mut stream = connect(lab.client(), lab.at_gateway(Family::V4, 80))?;
            stream.write_all(case)?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).with_context(|| format!("no end after {shown:?}"))?;
            ensure!(answer.starts_with(b"HTTP/1.1 4"), "{shown:?}: {:?}", String::from_utf8_lossy(&answer));
            ensure!(
                answer.windows(9).filter(|window| *window == b"HTTP/1.1 ").count() == 1,
                "{shown:?}: two answers"
            );
        }
        ensure!(server.requests().is_empty(), "the backend saw {:?}", server.requests());
        Ok(())
    });
}

/// O04: silent clients do not keep a place for ever, and cost the good client nothing.
#[test]
fn silent_clients_delay_nobody_and_are_dropped() {
    routed(1, |lab| {
        let _servers = identities(lab, 1)?;
        let _agent = serve_one(lab)?;
        let mut silent = Vec::new();
        for number in 0..300 {
            let mut stream = connect(lab.client(), lab.at_gateway(Family::V4, 80))?;
            if number % 2 == 0 {
                stream.write_all(b"GET / HT")?;
            }
            silent.push(stream);
        }
        let start = Instant::now();
        ensure!(get(lab.client(), lab.at_gateway(Family::V4, 80), "any", "/")?.status == 200, "not served");
        ensure!(start.elapsed() < Duration::from_secs(5), "the good client waited {:?}", start.elapsed());
        for mut stream in silent {
            // A deadline of its own ends each: by an answer (408) or without.
            stream.set_read_timeout(Some(Duration::from_secs(90)))?;
            let mut rest = Vec::new();
            match stream.read_to_end(&mut rest) {
                Ok(_) => ensure!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{rest:?}"),
                Err(error) => ensure!(error.kind() == ErrorKind::ConnectionReset, "{error}"),
            }
        }
        Ok(())
    });
}

/// Something else than connections has eaten the descriptors: what is open is served, what comes waits, and nobody spins.
#[test]
fn agent_without_descriptors_serves_what_it_has_and_the_rest_later() {
    routed(1, |lab| {
        let _servers = identities(lab, 1)?;
        let agent = serve_one(lab)?;
        let at = lab.at_gateway(Family::V4, 80);
        let request = b"GET / HTTP/1.1\r\nHost: any\r\n\r\n";
        let mut open = connect(lab.client(), at)?;
        ensure!(exchange(&mut open, request)?.status == 200, "not served");
        let pid = agent.worker();
        let used = std::fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        limit_descriptors(pid, &used.to_string())?;
        let mut waiting = (0..20).map(|_| connect(lab.client(), at)).collect::<Result<Vec<_>>>()?;
        let is_said = |agent: &Agent| agent.log().matches("cannot accept").count();
        eventually("accepting fails", || {
            ensure!(is_said(&agent) > 0, "nothing is said of it");
            Ok(())
        })?;
        ensure!(exchange(&mut open, request)?.status == 200, "an open connection is not served");
        limit_descriptors(pid, "4096")?;
        for stream in &mut waiting {
            ensure!(exchange(stream, request)?.status == 200, "what has waited is not served");
        }
        let failures = agent.metrics()?.sum("gateway_agent_accept_failures_total", &[]);
        // The pause between two is 50 ms; this test is over long before a thousand of them.
        ensure!((1.0..2000.0).contains(&failures), "{failures} failures");
        // Once by each worker when it begins, not once for each failure.
        ensure!(is_said(&agent) <= 2 * 4, "said {} times", is_said(&agent));
        Ok(())
    });
}

/// The soft limit of a process that runs.
fn limit_descriptors(pid: i32, n: &str) -> Result<()> {
    let program = lab::require_program("prlimit", "util-linux")?;
    let args = [format!("--pid={pid}"), format!("--nofile={n}:")];
    let status = std::process::Command::new(program).args(args).status()?;
    ensure!(status.success(), "prlimit: {status}");
    Ok(())
}

#[test]
fn backend_that_refuses_is_answered_502_or_503() {
    routed(1, |lab| {
        // Nothing listens there.
        let agent = serve_one(lab)?;
        for family in Family::BOTH {
            let status = get(lab.client(), lab.at_gateway(family, 80), "any", "/")?.status;
            ensure!(matches!(status, 502 | 503), "{family}: {status}");
        }
        let failures =
            agent.metrics()?.sum("gateway_agent_route_upstream_failures_total", &[("route", "route")]);
        ensure!(failures >= 2.0, "{failures} failures counted");
        Ok(())
    });
}

#[test]
fn backend_that_resets_is_answered_502() {
    routed(1, |lab| {
        let _server = TcpServer::start(lab.backend(1), any(8080), |mut stream, _| {
            stream.read_exact(&mut [0; 16])?;
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            Ok(())
        })?;
        let _agent = serve_one(lab)?;
        for family in Family::BOTH {
            let status = get(lab.client(), lab.at_gateway(family, 80), "any", "/")?.status;
            ensure!(status == 502, "{family}: {status}");
        }
        Ok(())
    });
}

/// What was promised cannot be kept: the client must see that, not a short body that looks whole.
#[test]
fn backend_that_dies_within_a_body_cuts_the_answer() {
    routed(1, |lab| {
        let _server = TcpServer::start(lab.backend(1), any(8080), |mut stream, _| {
            stream.read_exact(&mut [0; 16])?;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")?;
            Ok(())
        })?;
        let _agent = serve_one(lab)?;
        let error = get(lab.client(), lab.at_gateway(Family::V4, 80), "any", "/").err();
        ensure!(error.is_some(), "the cut body looks whole");
        Ok(())
    });
}

#[test]
fn backend_that_is_no_http_server_is_answered_502() {
    routed(1, |lab| {
        let _server = TcpServer::start(lab.backend(1), any(8080), |mut stream, _| {
            stream.read_exact(&mut [0; 16])?;
            stream.write_all(b"220 mail.example.com ESMTP\r\n\r\n")?;
            Ok(())
        })?;
        let _agent = serve_one(lab)?;
        let status = get(lab.client(), lab.at_gateway(Family::V4, 80), "any", "/")?.status;
        ensure!(status == 502, "{status}");
        Ok(())
    });
}

/// O19: informational answers are passed on or dropped, and never taken for the answer.
#[test]
fn informational_answers_are_not_final() {
    routed(1, |lab| {
        let _server = HttpServer::start(lab.backend(1), 8080, |_| {
            b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                .to_vec()
        })?;
        let _agent = serve_one(lab)?;
        let mut stream = connect(lab.client(), lab.at_gateway(Family::V4, 80))?;
        for _ in 0..3 {
            let response = exchange(&mut stream, b"GET / HTTP/1.1\r\nHost: any\r\n\r\n")?;
            ensure!(response.text() == "ok", "{:?}", response.text());
        }
        Ok(())
    });
}

/// A backend that accepts and never answers is given up; other requests are not held up meanwhile.
#[test]
fn backend_that_stalls_is_answered_504_and_delays_nobody() {
    routed(2, |lab| {
        let rules: &[lab::manifests::HttpRule<'_>] =
            &[("[{path: {value: /stall}}]", &[("web-1", 80, 1)]), ("", &[("web-2", 80, 1)])];
        serve_http(lab, 2, &[("route", &[], rules)])?;
        let _stall = TcpServer::start(lab.backend(1), any(8080), |mut stream, _| {
            // Reads what comes until the other side gives up.
            std::io::copy(&mut stream, &mut std::io::sink())?;
            Ok(())
        })?;
        let _web = HttpServer::identity(lab.backend(2), 8080, "web-2")?;
        let _agent =
            Agent::start(lab, &AgentOptions { workers: 1, ..AgentOptions::new(Datapath::Userspace) })?;
        let mut stalled = connect(lab.client(), lab.at_gateway(Family::V4, 80))?;
        stalled.write_all(b"GET /stall HTTP/1.1\r\nHost: any\r\n\r\n")?;
        let start = Instant::now();
        for _ in 0..20 {
            ensure!(
                get(lab.client(), lab.at_gateway(Family::V6, 80), "any", "/")?.status == 200,
                "not served"
            );
        }
        ensure!(start.elapsed() < Duration::from_secs(10), "held up for {:?}", start.elapsed());
        stalled.set_read_timeout(Some(Duration::from_secs(90)))?;
        let response = read_response(&mut stalled, &mut Vec::new())?;
        ensure!(response.status == 504, "{}", response.status);
        Ok(())
    });
}
