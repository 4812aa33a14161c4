//! A client of one replica, from outside of the nodes, on a connection that is kept: what a hostname answers, and when.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use lab::http::read_response;
use lab::{Netns, client};

/// Between two requests to one replica: what a measured moment may be late by, at a tenth of a core for the client.
pub(super) const PACE: Duration = Duration::from_micros(500);

/// What a hostname may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// 200 by the backend of this name.
    From(u8),
    /// 404: no route.
    Missing,
    /// Another status; 0 for none at all.
    Other(u16),
}

impl Answer {
    pub(super) const fn is_ok(self) -> bool {
        matches!(self, Self::From(_))
    }
}

pub(super) struct Probe<'a> {
    netns: &'a Netns,
    replica: SocketAddr,
    /// None after it broke.
    stream: Option<TcpStream>,
    buffered: Vec<u8>,
}

impl<'a> Probe<'a> {
    pub(super) fn new(netns: &'a Netns, replica: SocketAddr) -> Self {
        Self { netns, replica, stream: None, buffered: Vec::new() }
    }

    /// One request, and when its answer was there.
    pub(super) fn ask(&mut self, host: &str) -> (Instant, Answer) {
        let answer = self.exchange(host);
        // What failed is an answer too; the next request gets a connection of its own.
        if answer.is_err() {
            self.stream = None;
            self.buffered.clear();
        }
        (Instant::now(), answer.unwrap_or(Answer::Other(0)))
    }

    fn exchange(&mut self, host: &str) -> Result<Answer> {
        if self.stream.is_none() {
            self.stream = Some(client::connect(self.netns, self.replica)?);
        }
        let stream = self.stream.as_mut().context("a connection was just made")?;
        stream.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())?;
        let response = read_response(stream, &mut self.buffered)?;
        if response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            self.stream = None;
        }
        Ok(match (response.status, response.body.first()) {
            (200, Some(backend)) => Answer::From(*backend),
            (404, _) => Answer::Missing,
            (status, _) => Answer::Other(status),
        })
    }

    /// Asks until the answer is as wanted. Gives the moment of the first that is, and of the last 200 before it.
    pub(super) fn until(
        &mut self,
        host: &str,
        pace: Duration,
        is_wanted: impl Fn(Answer) -> bool,
    ) -> Result<(Instant, Option<Instant>)> {
        const DEADLINE: Duration = Duration::from_secs(60);
        let end = Instant::now() + DEADLINE;
        let mut last_ok = None;
        loop {
            let (at, answer) = self.ask(host);
            if is_wanted(answer) {
                return Ok((at, last_ok));
            }
            if answer.is_ok() {
                last_ok = Some(at);
            }
            anyhow::ensure!(
                at < end,
                "{} still answers {answer:?} for {host} after {DEADLINE:?}",
                self.replica
            );
            std::thread::park_timeout(pace);
        }
    }
}
