//! The holder's loop: signals, the worker's requests, restarts.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, pthread_sigmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::sockopt::{ReceiveTimeout, SendTimeout};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair};
use nix::sys::time::TimeVal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::REFUSED_TO_START;
use super::protocol::{Request, receive, send};
use super::store::Store;

/// After these the worker is expected to end, and is not started again.
const STOP_SIGNALS: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP];
const OTHER_FORWARDED: [Signal; 2] = [Signal::SIGUSR1, Signal::SIGUSR2];

/// The first restart is immediate; a worker that dies again and again is started 100 ms later, then 200 ms, ... 5 s:
/// short enough for an outage that ends, long enough to leave the machine alone.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A worker that lived as long as this had started well: the next restart is immediate again.
const HEALTHY_AFTER: Duration = Duration::from_secs(30);
/// On top of the worker's own grace period, which it is expected to keep by itself.
const KILL_MARGIN: Duration = Duration::from_secs(5);
/// A worker that does not read an answer of a few bytes for so long is stuck in a way that only a restart cures.
const SEND_TIMEOUT_S: i64 = 5;

pub(super) struct Parent {
    arguments: Vec<OsString>,
    grace: Duration,
    signals: SignalFd,
    store: Store,
    worker: Option<Worker>,
    restarts: u32,
    /// Deaths since the last worker that was healthy.
    deaths_in_a_row: u32,
    start_at: Instant,
    /// Set by a stop signal; the worker is killed then.
    kill_at: Option<Instant>,
}

struct Worker {
    pid: Pid,
    /// Closed when the worker said something that makes no sense.
    socket: Option<OwnedFd>,
    since: Instant,
}

impl Parent {
    pub(super) fn new(arguments: Vec<OsString>, grace: Duration) -> io::Result<Self> {
        let mut mask = SigSet::empty();
        for signal in STOP_SIGNALS.into_iter().chain(OTHER_FORWARDED).chain([Signal::SIGCHLD]) {
            mask.add(signal);
        }
        pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&mask), None)?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self {
            arguments,
            grace,
            signals,
            store: Store::default(),
            worker: None,
            restarts: 0,
            deaths_in_a_row: 0,
            start_at: Instant::now(),
            kill_at: None,
        })
    }

    /// The exit code.
    pub(super) fn run(mut self) -> u8 {
        loop {
            if self.worker.is_none() {
                if self.kill_at.is_some() {
                    return 0;
                }
                if Instant::now() >= self.start_at {
                    self.start();
                }
            }
            self.kill_if_overdue();
            let (signalled, asked) = self.wait();
            if signalled {
                self.forward_signals();
            }
            // Before the worker's end is looked at: its last requests count.
            if asked {
                self.answer();
            }
            if signalled && let Some(code) = self.reap() {
                return code;
            }
        }
    }

    /// Waits for a signal, a request or the next deadline.
    fn wait(&self) -> (bool, bool) {
        let socket = self.worker.as_ref().and_then(|worker| worker.socket.as_ref());
        let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        polled.extend(socket.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        let deadline = if self.worker.is_some() { self.kill_at } else { Some(self.start_at) };
        let timeout = deadline.map_or(PollTimeout::NONE, |deadline| {
            // One millisecond more, lest a rounded-down wait spins.
            let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        // An interrupted wait is as good as one that ended: the loop looks at everything again.
        if poll(&mut polled, timeout).is_err() {
            return (false, false);
        }
        let ready = |index: usize| {
            let events = polled.get(index).and_then(PollFd::revents);
            events.is_some_and(|events| !events.is_empty())
        };
        (ready(0), ready(1))
    }

    fn start(&mut self) {
        match spawn(&self.arguments) {
            Ok((pid, socket)) => {
                tracing::debug!(worker.pid = pid.as_raw(), "worker started");
                self.worker = Some(Worker { pid, socket: Some(socket), since: Instant::now() });
            }
            Err(error) => {
                tracing::error!(%error, "worker cannot be started, trying again");
                self.delay_start();
            }
        }
    }

    fn delay_start(&mut self) {
        self.restarts = self.restarts.saturating_add(1);
        self.start_at = Instant::now() + backoff(self.deaths_in_a_row);
        self.deaths_in_a_row = self.deaths_in_a_row.saturating_add(1);
    }

    fn kill_if_overdue(&mut self) {
        let overdue = self.kill_at.is_some_and(|deadline| Instant::now() >= deadline);
        if overdue && let Some(worker) = &self.worker {
            tracing::warn!(
                worker.pid = worker.pid.as_raw(),
                "worker has not ended in its grace period, killing it"
            );
            signal(worker.pid, Signal::SIGKILL);
            self.kill_at = Some(Instant::now() + KILL_MARGIN);
        }
    }

    fn forward_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            let Some(received) = i32::try_from(info.ssi_signo).ok().and_then(|n| Signal::try_from(n).ok())
            else {
                continue;
            };
            if received == Signal::SIGCHLD {
                continue;
            }
            if STOP_SIGNALS.contains(&received) && self.kill_at.is_none() {
                self.kill_at = Some(Instant::now() + self.grace + KILL_MARGIN);
            }
            if let Some(worker) = &self.worker {
                signal(worker.pid, received);
            }
        }
    }

    fn answer(&mut self) {
        let Some(worker) = &mut self.worker else { return };
        let Some(socket) = &worker.socket else { return };
        let answered = match receive(socket.as_fd()) {
            Ok(Some((bytes, descriptor))) => Request::decode(&bytes)
                .and_then(|request| self.store.answer(request, descriptor, self.restarts))
                .ok_or_else(|| io::Error::other("request makes no sense"))
                .and_then(|(reply, descriptor)| send(socket.as_fd(), &reply.encode(), descriptor)),
            // The worker is about to end, or has chosen to do without; its end is told by SIGCHLD.
            Ok(None) => {
                worker.socket = None;
                return;
            }
            Err(error) => Err(error),
        };
        if let Err(error) = answered {
            tracing::warn!(%error, "worker cannot be answered, hanging up on it");
            worker.socket = None;
        }
    }

    /// Collects all children that have ended: as process 1 of a container also such as were nobody's. The exit code
    /// when the worker has ended for good.
    fn reap(&mut self) -> Option<u8> {
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(status) => status,
                Err(nix::Error::EINTR) => continue,
                Err(_no_children) => return None,
            };
            let code = match status {
                WaitStatus::Exited(_, code) => u8::try_from(code).unwrap_or(u8::MAX),
                // As a shell says it; signal numbers are below 65.
                WaitStatus::Signaled(_, signal, _) => u8::try_from(128 + signal as i32).unwrap_or(u8::MAX),
                WaitStatus::StillAlive => return None,
                _ => continue,
            };
            let Some(worker) = self.worker.take_if(|worker| status.pid() == Some(worker.pid)) else {
                continue;
            };
            if self.kill_at.is_some() || code == 0 || code == REFUSED_TO_START {
                return Some(code);
            }
            if worker.since.elapsed() >= HEALTHY_AFTER {
                self.deaths_in_a_row = 0;
            }
            self.delay_start();
            tracing::error!(
                code,
                restarts = self.restarts,
                "worker died, starting it again with the kernel state kept"
            );
        }
    }
}

fn backoff(deaths_in_a_row: u32) -> Duration {
    match deaths_in_a_row {
        0 => Duration::ZERO,
        n => BACKOFF_FIRST.saturating_mul(2u32.saturating_pow(n - 1)).min(BACKOFF_MAX),
    }
}

/// The worker's death shows in `reap`, whatever becomes of the signal.
fn signal(pid: Pid, signal: Signal) {
    if let Err(error) = kill(pid, signal) {
        tracing::debug!(%error, %signal, "worker cannot be signalled");
    }
}

/// Starts this very program; `/proc/self/exe` is it also after the file was replaced by an upgrade.
fn spawn(arguments: &[OsString]) -> io::Result<(Pid, OwnedFd)> {
    let (near, far) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    let timeout = TimeVal::new(SEND_TIMEOUT_S, 0);
    setsockopt(&near, SendTimeout, &timeout)?;
    setsockopt(&near, ReceiveTimeout, &timeout)?;
    let far_number: RawFd = far.as_raw_fd();

    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    command.args(arguments).arg("--holder-fd").arg(far_number.to_string());
    // A process group of its own: Ctrl-C in a terminal reaches the worker once, from here.
    command.process_group(0);
    let inherit = move || {
        // SAFETY: `far` is open until `spawn` returns, and this runs within.
        let far = unsafe { std::os::fd::BorrowedFd::borrow_raw(far_number) };
        fcntl(far, FcntlArg::F_SETFD(FdFlag::empty()))?;
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        Ok(())
    };
    // SAFETY: `inherit` makes two system calls and allocates nothing.
    unsafe { command.pre_exec(inherit) };
    let child = command.spawn()?;
    // Of a process id of the kernel, which is positive.
    Ok((Pid::from_raw(child.id().cast_signed()), near))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::backoff;

    #[test]
    fn first_restart_is_immediate_and_later_ones_are_bounded() {
        assert_eq!(backoff(0), Duration::ZERO);
        assert_eq!(backoff(1), Duration::from_millis(100));
        assert_eq!(backoff(2), Duration::from_millis(200));
        assert_eq!(backoff(7), Duration::from_secs(5));
        assert_eq!(backoff(u32::MAX), Duration::from_secs(5));
    }
}
