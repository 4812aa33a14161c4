//! Running a step's commands: into a log, within a time, and never left behind.
//!
//! Each command leads a process group of its own, so what it started can be stopped with it: at the time limit, and
//! when this process is told to end.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::IntoRawFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, killpg, sigaction};
use nix::unistd::Pid;

use crate::command::{line, target_dir};
use crate::libtest::{self, Counts};

/// How much of a failed step's log is shown: a compiler's or a linter's message is in the last lines.
const SHOWN_LINES: usize = 80;

/// Where tests failed, their messages are shown by themselves.
const SHOWN_LINES_OF_TESTS: usize = 10;

/// Between the request to end and the kill: a test run removes its network namespaces.
const GRACE: Duration = Duration::from_secs(10);

/// The groups that run now.
static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

pub(super) fn log_dir() -> PathBuf {
    target_dir().join("xtask").join("test")
}

pub(super) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    pub(super) fn create(name: &str) -> Result<Self> {
        let dir = log_dir();
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let path = dir.join(format!("{}.log", name.replace(' ', "-")));
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path, file })
    }

    /// Runs `command` to its end, all its output into the log.
    pub(super) fn run(&mut self, command: Command, limit: Duration) -> Result<()> {
        let output = self.file.try_clone()?;
        self.run_to(command, limit, output)
    }

    /// The same, but what it writes to standard output becomes the file at `path`.
    pub(super) fn run_with_output(&mut self, command: Command, limit: Duration, path: &Path) -> Result<()> {
        let output = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let result = self.run_to(command, limit, output);
        if result.is_err() {
            fs::remove_file(path)?;
        }
        result
    }

    fn run_to(&mut self, mut command: Command, limit: Duration, output: File) -> Result<()> {
        writeln!(self.file, "+ {}", line(&command))?;
        command.stdin(Stdio::null()).stdout(output).stderr(self.file.try_clone()?).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start `{}`", line(&command)))?;
        let status = wait(child, limit)?;
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => match status.signal() {
                Some(signal) => bail!("`{}` was ended by signal {signal}", line(&command)),
                None => bail!("`{}` failed with exit code {}", line(&command), status.code().unwrap_or(-1)),
            },
            None => bail!("`{}` was stopped after {} s", line(&command), limit.as_secs()),
        }
    }

    fn text(&self) -> String {
        let bytes = fs::read(&self.path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(super) fn counts(&self) -> Counts {
        libtest::counts(&self.text())
    }

    /// What a reader needs of a failure: which tests, and the last lines.
    pub(super) fn end(&self) -> String {
        let text = self.text();
        let mut end = String::new();
        for name in libtest::failed_names(&text) {
            end.push_str(&format!("  failed: {name}\n"));
        }
        for line in libtest::failures(&text) {
            end.push_str(&format!("  | {line}\n"));
        }
        let n_shown = if end.is_empty() { SHOWN_LINES } else { SHOWN_LINES_OF_TESTS };
        let lines: Vec<&str> = text.lines().collect();
        for line in &lines[lines.len().saturating_sub(n_shown)..] {
            end.push_str(&format!("  | {line}\n"));
        }
        end
    }
}

/// Waits for the child, at most for `limit`; then its whole group is stopped and the answer is `None`.
fn wait(mut child: Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let group = i32::try_from(child.id()).context("a process id is positive and fits")?;
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner).insert(group);
    let (sender, receiver) = sync_channel(1);
    let waiter = std::thread::spawn(move || {
        // The receiver is gone only when this process ends.
        drop(sender.send(child.wait()));
    });
    let status = match receiver.recv_timeout(limit) {
        Ok(status) => Some(status?),
        Err(_late) => {
            signal(group, Signal::SIGTERM);
            if receiver.recv_timeout(GRACE).is_err() {
                signal(group, Signal::SIGKILL);
            }
            None
        }
    };
    // What the command started and did not wait for ends with it.
    signal(group, Signal::SIGKILL);
    drop(waiter.join());
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner).remove(&group);
    Ok(status)
}

/// A group that has already ended is no error.
fn signal(group: i32, signal: Signal) {
    killpg(Pid::from_raw(group), signal).ok();
}

/// Where the signal handler writes.
static WAKE_FD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(_signal: libc::c_int) {
    let byte = 0_u8;
    // SAFETY: write(2) is async-signal-safe, the descriptor is never closed, and the byte lives on this stack.
    unsafe { libc::write(WAKE_FD.load(Ordering::Relaxed), (&raw const byte).cast(), 1) };
}

/// From here on an interrupt ends the running commands too: they are in groups of their own, so the terminal's signal
/// does not reach them. The signals are caught, not blocked: what is blocked here is blocked in every command.
pub(super) fn stop_all_on_signal() -> Result<()> {
    let (mut reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    WAKE_FD.store(writer.into_raw_fd(), Ordering::Relaxed);
    let action = SigAction::new(SigHandler::Handler(on_signal), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler does nothing but an async-signal-safe call.
        unsafe { sigaction(signal, &action) }.context("cannot catch signals")?;
    }
    std::thread::spawn(move || {
        if reader.read_exact(&mut [0]).is_err() {
            return;
        }
        eprintln!("test: interrupted, stopping");
        let groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for group in &groups {
            signal(*group, Signal::SIGTERM);
        }
        wait_for_groups(&groups);
        for group in groups {
            signal(group, Signal::SIGKILL);
        }
        std::process::exit(130);
    });
    Ok(())
}

/// Until they are gone, at most the grace period.
#[expect(clippy::disallowed_methods, reason = "their waiters take the exit codes; this only watches")]
fn wait_for_groups(groups: &BTreeSet<i32>) {
    let deadline = std::time::Instant::now() + GRACE;
    while std::time::Instant::now() < deadline
        && groups.iter().any(|group| killpg(Pid::from_raw(*group), None).is_ok())
    {
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_command_that_hangs_is_stopped_with_what_it_started() {
        let mut log = Log::create("job-test-hang").unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let output = File::from(OwnedFd::from(writer));
        let hangs = shell("sleep 1000 & sleep 1000");
        let error = log.run_to(hangs, Duration::from_millis(500), output).unwrap_err();
        assert!(error.to_string().contains("was stopped after"), "{error}");
        // The end comes when the last of them is gone.
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn output_goes_to_the_log_and_a_failure_shows_its_end() {
        let mut log = Log::create("job-test-output").unwrap();
        log.run(shell("echo 'test result: ok. 3 passed; 0 failed;'"), Duration::from_secs(60)).unwrap();
        assert_eq!(log.counts(), Counts { passed: 3, failed: 0 });
        let failing = shell("echo 'test a::b ... FAILED' >&2; exit 3");
        let error = log.run(failing, Duration::from_secs(60)).unwrap_err();
        assert!(error.to_string().ends_with("exit code 3"), "{error}");
        assert!(log.end().contains("failed: a::b"), "{}", log.end());
    }
}
