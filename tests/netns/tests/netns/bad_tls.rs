//! What a passthrough listener must take, and what it must not.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab::client::connect;
use lab::hello::Hello;
use lab::{Agent, AgentOptions, Datapath, Family, Lab};

use crate::bed::routed;
use crate::tls::{TLS_PORT, read_line, receipt, recorder, send_hello, serve_tls};

const NAME: Hello<'_> = Hello { server_name: Some("a.example.com"), at_least: 0 };

fn start(lab: &Lab) -> Result<Agent> {
    serve_tls(lab, &[&["a.example.com"]])?;
    Agent::start(lab, &AgentOptions::new(Datapath::Userspace))
}

/// Closed, by FIN or RST, without a byte: the listener has no key and so no TLS to say.
fn is_closed_in_silence(stream: &mut TcpStream) -> Result<()> {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => ensure!(rest.is_empty(), "answered {rest:?}"),
        Err(error) => ensure!(error.kind() == ErrorKind::ConnectionReset, "{error}"),
    }
    Ok(())
}

#[test]
fn hello_may_be_cut_at_every_byte() {
    routed(1, |lab| {
        for record in [16_384, 40] {
            let hello = NAME.records(record);
            let _server = recorder(lab, 1, hello.len())?;
            let _agent = start(lab)?;
            for family in Family::BOTH {
                let mut streams = Vec::new();
                for cut in 1..hello.len() {
                    let mut stream = connect(lab.client(), lab.at_gateway(family, TLS_PORT))?;
                    stream.write_all(&hello[..cut])?;
                    streams.push((stream, cut));
                }
                for (mut stream, cut) in streams {
                    stream.write_all(&hello[cut..])?;
                    let answer = read_line(&mut stream).with_context(|| format!("{family}, cut {cut}"))?;
                    ensure!(
                        answer == receipt(1, &hello),
                        "{family}, records of {record}, cut {cut}: {answer:?}"
                    );
                }
            }
        }
        Ok(())
    });
}

#[test]
fn half_a_hello_and_silence_is_ended_by_a_deadline() {
    routed(1, |lab| {
        let hello = NAME.records(16_384);
        let server = recorder(lab, 1, hello.len())?;
        let _agent = start(lab)?;
        let mut silent = Vec::new();
        for family in Family::BOTH {
            for length in [0, 1, 5, hello.len() / 2, hello.len() - 1] {
                let mut stream = connect(lab.client(), lab.at_gateway(family, TLS_PORT))?;
                stream.write_all(&hello[..length])?;
                silent.push((stream, length));
            }
        }
        let start = Instant::now();
        ensure!(send_hello(lab, Family::V4, &hello)? == receipt(1, &hello), "the good client is not served");
        ensure!(start.elapsed() < Duration::from_secs(8), "the good client waited {:?}", start.elapsed());
        for (mut stream, length) in silent {
            stream.set_read_timeout(Some(Duration::from_secs(60)))?;
            is_closed_in_silence(&mut stream).with_context(|| format!("after {length} bytes"))?;
        }
        ensure!(server.accepted() == 1, "the backend got {} connections", server.accepted());
        Ok(())
    });
}

#[test]
fn hellos_that_lead_nowhere_are_closed_in_silence() {
    routed(1, |lab| {
        let server = recorder(lab, 1, 1)?;
        let agent = start(lab)?;
        let no_name = Hello { server_name: None, at_least: 0 }.records(16_384);
        let other = Hello { server_name: Some("b.example.com"), at_least: 0 }.records(16_384);
        let large = Hello { at_least: 40_000, ..NAME }.records(16_384);
        let cases: [(&str, &[u8]); 7] = [
            ("no server name", &no_name),
            ("another name", &other),
            ("larger than 16 KiB", &large),
            ("HTTP", b"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n"),
            // O04: a PostgreSQL start-up packet.
            ("PostgreSQL", b"\0\0\0\x08\x04\xd2\x16\x2f"),
            ("an alert", b"\x15\x03\x01\0\x02\x02\x28"),
            ("a record of length zero", b"\x16\x03\x01\0\0\x16\x03\x01\0\0"),
        ];
        for family in Family::BOTH {
            for (what, bytes) in cases {
                let mut stream = connect(lab.client(), lab.at_gateway(family, TLS_PORT))?;
                // The listener may refuse before all is sent.
                drop(stream.write_all(bytes));
                is_closed_in_silence(&mut stream).with_context(|| format!("{family}: {what}"))?;
            }
        }
        ensure!(server.accepted() == 0, "the backend got {} connections", server.accepted());
        let unrouted = agent.metrics()?.sum("gateway_agent_listener_unrouted_total", &[("listener", "tls")]);
        ensure!(unrouted == 14.0, "{unrouted} of 14 counted");
        Ok(())
    });
}

#[test]
fn backend_that_refuses_closes_the_client() {
    routed(1, |lab| {
        let agent = start(lab)?;
        for family in Family::BOTH {
            let mut stream = connect(lab.client(), lab.at_gateway(family, TLS_PORT))?;
            stream.write_all(&NAME.records(16_384))?;
            is_closed_in_silence(&mut stream)?;
        }
        let failures =
            agent.metrics()?.sum("gateway_agent_route_upstream_failures_total", &[("route", "tls-1")]);
        ensure!(failures >= 2.0, "{failures} failures counted");
        Ok(())
    });
}
