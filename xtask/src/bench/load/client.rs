//! The client of the load: one pinned thread that entered the client's namespace.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use socket2::{Domain, Protocol, Socket, Type};

use super::poll::{Interest, Poll, pin};
use super::{Load, Work};
use crate::bench::cpu::Group;

/// Without an answer for this long the path under test is broken, not slow.
const STALL: Duration = Duration::from_secs(10);

const BULK_BYTES: usize = 256 * 1024;

/// A connection or exchange that takes longer is counted in the last place.
const HISTOGRAM_MICROS: usize = 200_000;

pub(super) struct Counted {
    pub(super) units: f64,
    pub(super) elapsed: Duration,
    pub(super) gateway_micros: f64,
    pub(super) total_micros: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

pub(super) fn run(load: &Load<'_>, gateway: &Group, around: &Group) -> Result<Counted> {
    load.client.try_run(|| {
        pin(load.cpu)?;
        let own = Group::threads(&[nix::unistd::gettid().as_raw()]);
        let total = around.clone().with(own);
        let mut client = Client::new(load)?;
        client.advance_for(load.warm_up)?;
        client.units = 0.0;
        client.histogram.fill(0);
        let (gateway_before, total_before) = (gateway.micros()?, total.micros()?);
        let start = Instant::now();
        client.advance_for(load.length)?;
        let elapsed = start.elapsed();
        let (gateway_micros, total_micros) =
            (gateway.micros()? - gateway_before, total.micros()? - total_before);
        ensure!(client.units > 0.0, "nothing was done in {elapsed:?}");
        let (p50_us, p99_us) = (client.percentile(0.5), client.percentile(0.99));
        Ok(Counted { units: client.units, elapsed, gateway_micros, total_micros, p50_us, p99_us })
    })
}

struct Connection {
    stream: TcpStream,
    since: Instant,
    /// Whether preamble and order are out; until then the connection waits to be writable.
    is_open: bool,
}

struct Client<'a> {
    load: &'a Load<'a>,
    poll: Poll,
    connections: Vec<Connection>,
    units: f64,
    histogram: Vec<u32>,
    buffer: Vec<u8>,
    greeting: Vec<u8>,
}

impl<'a> Client<'a> {
    fn new(load: &'a Load<'a>) -> Result<Self> {
        let mut greeting = load.preamble.to_vec();
        greeting.push(load.work.order());
        if matches!(load.work, Work::RoundTrips | Work::Connects) {
            greeting.push(b'x');
        }
        let poll = Poll::new()?;
        let mut connections = Vec::new();
        for token in 0..load.work.connections() {
            connections.push(open(load, &poll, token)?);
        }
        Ok(Self {
            load,
            poll,
            connections,
            units: 0.0,
            histogram: vec![0; HISTOGRAM_MICROS + 1],
            buffer: vec![0; BULK_BYTES],
            greeting,
        })
    }

    fn advance_for(&mut self, length: Duration) -> Result<()> {
        let end = Instant::now() + length;
        let mut last = Instant::now();
        let mut ready = Vec::new();
        while Instant::now() < end {
            self.poll.wait(Duration::from_millis(100), &mut ready)?;
            if ready.is_empty() {
                ensure!(last.elapsed() < STALL, "no connection moved for {STALL:?}");
                continue;
            }
            last = Instant::now();
            for token in &ready {
                let token = usize::try_from(*token)?;
                self.advance(token).with_context(|| format!("a connection to {}", self.load.to))?;
            }
        }
        Ok(())
    }

    fn advance(&mut self, token: usize) -> Result<()> {
        let connection = &mut self.connections[token];
        if !connection.is_open {
            if let Some(error) = connection.stream.take_error()? {
                return Err(error).context("connect");
            }
            let count = connection.stream.write(&self.greeting)?;
            ensure!(count == self.greeting.len(), "the preamble does not fit into a new connection");
            connection.is_open = true;
            let interest = if self.load.work == Work::Upload { Interest::Write } else { Interest::Read };
            return Ok(self.poll.change(&connection.stream, u64::try_from(token)?, interest)?);
        }
        if self.load.work == Work::Upload {
            match connection.stream.write(&self.buffer) {
                Ok(count) => self.units += count as f64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            return Ok(());
        }
        let count = match connection.stream.read(&mut self.buffer) {
            Ok(0) => bail!("the gateway ended the connection"),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        match self.load.work {
            Work::Download => self.units += count as f64,
            Work::RoundTrips => {
                self.finish_exchange(token);
                self.connections[token].stream.write_all(b"x")?;
            }
            Work::Connects => {
                self.finish_exchange(token);
                self.connections[token] = open(self.load, &self.poll, token)?;
            }
            Work::Upload => {}
        }
        Ok(())
    }

    fn finish_exchange(&mut self, token: usize) {
        let connection = &mut self.connections[token];
        let micros = usize::try_from(connection.since.elapsed().as_micros()).unwrap_or(HISTOGRAM_MICROS);
        connection.since = Instant::now();
        self.histogram[micros.min(HISTOGRAM_MICROS)] += 1;
        self.units += 1.0;
    }

    fn percentile(&self, share: f64) -> f64 {
        let total: u64 = self.histogram.iter().map(|count| u64::from(*count)).sum();
        let mut below = 0;
        for (micros, count) in self.histogram.iter().enumerate() {
            below += u64::from(*count);
            if below > 0 && below as f64 >= share * total as f64 {
                return micros as f64;
            }
        }
        0.0
    }
}

fn open(load: &Load<'_>, poll: &Poll, token: usize) -> Result<Connection> {
    let socket =
        Socket::new(Domain::for_address(load.to), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&load.to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error).with_context(|| format!("connect to {}", load.to)),
    }
    let stream = TcpStream::from(socket);
    poll.add(&stream, u64::try_from(token)?, Interest::Write)?;
    Ok(Connection { stream, since: Instant::now(), is_open: false })
}
