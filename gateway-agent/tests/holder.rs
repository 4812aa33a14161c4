//! The holder process with real workers: this program is the test driver, the holder (`hold ...`) and the worker
//! (`... --holder-fd N`), for the holder starts its own binary.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use gateway_agent::holder::{self, Client};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

/// Generous, for the machine may be busy; nothing here takes a second, but for the killing of a stuck worker.
const DEADLINE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(position) = arguments.iter().position(|argument| argument == "--holder-fd") {
        return worker(&arguments[0], arguments[position + 1].parse().unwrap());
    }
    if arguments.first().is_some_and(|first| first == "hold") {
        return holder::run(arguments.into_iter().skip(1).map(Into::into), Duration::ZERO);
    }
    drive(&arguments)
}

// === The worker ===

fn worker(behaviour: &str, descriptor: i32) -> ExitCode {
    // Blocked before the first line is printed: the driver may signal as soon as it has read that.
    let stop = SigSet::from(Signal::SIGTERM);
    stop.thread_block().unwrap();
    let client = Client::from_raw_fd(descriptor).unwrap();
    say(&format!("started {} {}", std::process::id(), client.restarts().unwrap()));
    match behaviour {
        "keep" => keep(&client),
        "crash" => std::process::abort(),
        "exit-0" => return ExitCode::SUCCESS,
        "refuse" => return ExitCode::from(holder::REFUSED_TO_START),
        "orphan" => orphan(),
        "stubborn" => loop {
            std::thread::park();
        },
        other => panic!("unknown behaviour {other}"),
    }
    stop.wait().unwrap();
    ExitCode::from(7)
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").unwrap();
    output.flush().unwrap();
}

/// What a map of the kernel path is to the agent, a memory file is here.
fn keep(client: &Client) {
    for (name, descriptor) in client.take_all().unwrap() {
        let mut file = File::from(descriptor);
        let mut content = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut content).unwrap();
        say(&format!("found {name} {content}"));
    }
    let memory: OwnedFd = memfd_create(c"kept", MFdFlags::MFD_CLOEXEC).unwrap();
    client.put("map/GONE", memory.as_fd()).unwrap();
    client.put("map/KEPT", memory.as_fd()).unwrap();
    client.remove("map/GONE").unwrap();
    let mut file = File::from(memory);
    write!(file, "of-{}", std::process::id()).unwrap();
    say("kept");
}

/// Leaves a child to process 1 of the namespace, which is the holder, and watches whether it is collected.
fn orphan() {
    let script = "(exit 3) & echo $!";
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    let pid = String::from_utf8(output.stdout).unwrap();
    let collected = eventually(|| !std::path::Path::new("/proc").join(pid.trim()).exists());
    say(if collected { "collected" } else { "zombie" });
}

// === The driver ===

fn drive(arguments: &[String]) -> ExitCode {
    let tests: &[(&str, fn())] = &[
        ("holder_keeps_descriptors_over_kill_9_of_the_worker", keeps_descriptors),
        ("holder_ends_with_a_worker_that_ended_cleanly", ends_cleanly),
        ("holder_ends_with_a_worker_that_refused_to_start", ends_on_refusal),
        ("holder_restarts_a_crashing_worker_and_counts", restarts_and_counts),
        ("holder_forwards_sigterm_and_hands_the_exit_code_on", forwards_sigterm),
        ("holder_kills_a_worker_that_ignores_sigterm", kills_the_stubborn),
        ("holder_that_dies_takes_its_worker_along", takes_worker_along),
        ("holder_as_process_1_collects_orphans", collects_orphans),
    ];
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let chosen = tests.iter().filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter)));
    for (name, test) in chosen {
        if arguments.iter().any(|argument| argument == "--list") {
            println!("{name}: test");
            continue;
        }
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

struct Holder {
    process: Child,
    lines: Receiver<String>,
}

impl Holder {
    fn start(behaviour: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["hold", behaviour]);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = sync_channel(64);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { process, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("a line from the worker")
    }

    fn started(&self) -> (Pid, u32) {
        let line = self.line();
        let mut words = line.strip_prefix("started ").expect("a start").split(' ');
        let mut number = || words.next().unwrap().parse().unwrap();
        (Pid::from_raw(number()), number().try_into().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().try_into().unwrap())
    }

    fn end(&mut self) -> ExitStatus {
        let mut status = None;
        assert!(eventually(|| {
            status = self.process.try_wait().unwrap();
            status.is_some()
        }));
        status.unwrap()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Ended already in a test that passed; a failed one leaves nothing behind.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    false
}

/// Gone, or dead and not yet collected by whoever inherited it.
fn is_dead(pid: Pid) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    status.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

fn keeps_descriptors() {
    let mut holder = Holder::start("keep");
    let (mut worker, _) = holder.started();
    assert_eq!(holder.line(), "kept");
    for round in 1..=3 {
        let before = worker;
        kill(worker, Signal::SIGKILL).unwrap();
        let restarts;
        (worker, restarts) = holder.started();
        assert_eq!(restarts, round);
        assert_eq!(holder.line(), format!("found map/KEPT of-{before}"));
        assert_eq!(holder.line(), "kept");
    }
    kill(holder.pid(), Signal::SIGTERM).unwrap();
    assert_eq!(holder.end().code(), Some(7));
}

fn ends_cleanly() {
    let mut holder = Holder::start("exit-0");
    holder.started();
    assert_eq!(holder.end().code(), Some(0));
}

fn ends_on_refusal() {
    let mut holder = Holder::start("refuse");
    holder.started();
    assert_eq!(holder.end().code(), Some(i32::from(holder::REFUSED_TO_START)));
    assert!(holder.lines.recv_timeout(DEADLINE).is_err(), "started again");
}

fn restarts_and_counts() {
    let mut holder = Holder::start("crash");
    for round in 0..4 {
        assert_eq!(holder.started().1, round);
    }
    kill(holder.pid(), Signal::SIGTERM).unwrap();
    holder.end();
}

fn forwards_sigterm() {
    let mut holder = Holder::start("keep");
    holder.started();
    assert_eq!(holder.line(), "kept");
    kill(holder.pid(), Signal::SIGTERM).unwrap();
    assert_eq!(holder.end().code(), Some(7));
}

fn kills_the_stubborn() {
    let mut holder = Holder::start("stubborn");
    let (worker, _) = holder.started();
    kill(holder.pid(), Signal::SIGTERM).unwrap();
    assert_eq!(holder.end().code(), Some(128 + 9));
    assert!(is_dead(worker));
}

fn takes_worker_along() {
    let mut holder = Holder::start("keep");
    let (worker, _) = holder.started();
    assert_eq!(holder.line(), "kept");
    kill(holder.pid(), Signal::SIGKILL).unwrap();
    holder.end();
    assert!(eventually(|| is_dead(worker)));
}

fn collects_orphans() {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.arg(std::env::current_exe().unwrap()).args(["hold", "orphan"]);
    let holder = Holder::of(command);
    let started = holder.lines.recv_timeout(DEADLINE).expect("a PID namespace: run the tests as root");
    assert!(started.starts_with("started "));
    assert_eq!(holder.line(), "collected");
}
