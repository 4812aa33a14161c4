//! The backend of the load.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lab::{Netns, servers};
use nix::sched::{CloneFlags, setns};

use super::poll::{Interest, Poll, pin};
use crate::bench::cpu::Group;

/// How often it looks whether it should end.
const TICK: Duration = Duration::from_millis(50);

/// As large as a socket's send buffer takes at once.
const BULK_BYTES: usize = 256 * 1024;

/// The token of the listening socket; connections count from 1.
const LISTENER: u64 = 0;

pub(in crate::bench) struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
    tid: i32,
}

impl Server {
    /// Listens in `netns`; every connection begins with `preamble` bytes that mean nothing here.
    pub(in crate::bench) fn start(netns: &Netns, port: u16, preamble: usize, cpu: usize) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, wait_ready) = sync_channel(1);
        let thread = {
            let (stop, netns) = (Arc::clone(&stop), netns.clone());
            std::thread::Builder::new().name("bench-server".into()).spawn(move || {
                let file = std::fs::File::open(netns.path())?;
                setns(file, CloneFlags::CLONE_NEWNET)?;
                pin(cpu)?;
                let listener = TcpListener::bind(servers::any(port))?;
                listener.set_nonblocking(true)?;
                ready.send(nix::unistd::gettid().as_raw())?;
                serve(&listener, preamble, &stop)
            })?
        };
        match wait_ready.recv() {
            Ok(tid) => Ok(Self { stop, thread: Some(thread), tid }),
            Err(_) => {
                thread.join().expect("the server does not panic")?;
                anyhow::bail!("the server ended at once")
            }
        }
    }

    pub(in crate::bench) fn group(&self) -> Group {
        Group::threads(&[self.tid])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

struct Connection {
    stream: TcpStream,
    /// Bytes of the preamble still to come.
    preamble: usize,
    order: Option<u8>,
}

fn serve(listener: &TcpListener, preamble: usize, stop: &AtomicBool) -> Result<()> {
    let mut poll = Poll::new()?;
    poll.add(listener, LISTENER, Interest::Read)?;
    let mut connections: HashMap<u64, Connection> = HashMap::new();
    let mut next = LISTENER;
    let mut ready = Vec::new();
    let mut buffer = vec![0; BULK_BYTES];
    while !stop.load(Ordering::Relaxed) {
        poll.wait(TICK, &mut ready)?;
        for token in &ready {
            if *token == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true)?;
                    stream.set_nodelay(true)?;
                    next += 1;
                    poll.add(&stream, next, Interest::Read)?;
                    connections.insert(next, Connection { stream, preamble, order: None });
                }
                continue;
            }
            let Some(connection) = connections.get_mut(token) else { continue };
            if !advance(connection, &poll, *token, &mut buffer) {
                connections.remove(token);
            }
        }
    }
    Ok(())
}

/// Reads and writes what it can; false when the connection is over.
fn advance(connection: &mut Connection, poll: &Poll, token: u64, buffer: &mut [u8]) -> bool {
    if connection.order == Some(b'd') {
        return match connection.stream.write(buffer) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
    }
    let count = match connection.stream.read(buffer) {
        Ok(0) => return false,
        Ok(count) => count,
        Err(error) => return error.kind() == ErrorKind::WouldBlock,
    };
    let skipped = count.min(connection.preamble);
    connection.preamble -= skipped;
    let mut rest = &buffer[skipped..count];
    if connection.order.is_none() {
        let Some((order, payload)) = rest.split_first() else { return true };
        connection.order = Some(*order);
        rest = payload;
        if *order == b'd' {
            return poll.change(&connection.stream, token, Interest::Write).context("epoll").is_ok();
        }
    }
    // One byte always finds room, so a short write ends the connection as an error would.
    connection.order != Some(b'e')
        || rest.is_empty()
        || connection.stream.write(rest).is_ok_and(|n| n == rest.len())
}
