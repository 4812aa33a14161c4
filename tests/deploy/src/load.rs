//! Steady requests from outside while something else happens, none of which may be lost.

use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, ensure};
use lab::http::{Response, read_response};
use lab::{Netns, client};

/// Between two requests of one client: steady, and little against the machine's two cores.
const PAUSE: Duration = Duration::from_millis(10);

/// Messages of lost requests that are kept; one tells what is wrong, the rest that it is not alone.
const SHOWN: usize = 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub answered: u64,
    pub lost: Vec<String>,
}

pub struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Tally>>,
}

impl Load {
    /// Clients that connect for each request, and as many that keep their connection for as long as they may.
    pub fn start(netns: &Netns, to: SocketAddr, host: &str, n_each: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..2 * n_each)
            .map(|n| {
                let (netns, host, stop) = (netns.clone(), host.to_owned(), Arc::clone(&stop));
                let keeps = n % 2 == 1;
                std::thread::spawn(move || requests(&netns, to, &host, keeps, &stop))
            })
            .collect();
        Self { stop, clients }
    }

    /// Ends the requests and sums up.
    pub fn finish(self) -> Result<Tally> {
        self.stop.store(true, Ordering::Relaxed);
        let mut sum = Tally::default();
        for client in self.clients {
            let tally = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sum.answered += tally.answered;
            sum.lost.extend(tally.lost);
        }
        sum.lost.truncate(SHOWN);
        ensure!(sum.answered > 0, "no request was answered: {:?}", sum.lost);
        Ok(sum)
    }
}

fn requests(netns: &Netns, to: SocketAddr, host: &str, keeps: bool, stop: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    let mut kept = None;
    while !stop.load(Ordering::Relaxed) {
        match request(netns, to, host, keeps, &mut kept) {
            Ok(response) if response.status == 200 => tally.answered += 1,
            Ok(response) => tally.lost.push(format!("status {}", response.status)),
            Err(error) => tally.lost.push(format!("{error:#}")),
        }
        tally.lost.truncate(SHOWN);
        std::thread::park_timeout(PAUSE);
    }
    tally
}

fn request(
    netns: &Netns,
    to: SocketAddr,
    host: &str,
    keeps: bool,
    kept: &mut Option<TcpStream>,
) -> Result<Response> {
    if !keeps {
        return client::get(netns, to, host, "/");
    }
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    // An idle connection may end at any time, also while a request is on its way: clients send such a request again
    // (RFC 9112, section 9.3.1). Once a byte of the answer has come, it is lost.
    let kept_alive = kept.take().and_then(|stream| {
        (&stream).write_all(request.as_bytes()).is_ok().then_some(stream).filter(is_answered)
    });
    let mut stream = match kept_alive {
        Some(stream) => stream,
        None => {
            let mut stream = client::connect(netns, to)?;
            stream.write_all(request.as_bytes())?;
            stream
        }
    };
    let response = read_response(&mut stream, &mut Vec::new())?;
    let closes = response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    if !closes {
        *kept = Some(stream);
    }
    Ok(response)
}

/// False at the end of the connection; an answer that never comes is an answer that is lost.
fn is_answered(stream: &TcpStream) -> bool {
    match stream.peek(&mut [0]) {
        Ok(n_bytes) => n_bytes > 0,
        Err(error) => !matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
    }
}
