//! What a request costs the proxy in system calls.
//!
//! One thread of the agent is traced by `strace` while a client asks one request after the other over one connection. Two
//! runs of different length are compared, so that what attaching and letting go costs, once per run, falls out.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use lab::client::connect;
use lab::http::exchange;
use lab::{Agent, AgentOptions, Command, DEADLINE, Datapath, Family, Lab, eventually};
use nix::sys::signal::Signal;

use crate::bed::routed;
use crate::http::{identities, serve_http};

/// Requests of the short and of the long run.
const SHORT: u64 = 200;
const LONG: u64 = 1_200;

/// All that waits for sockets: with one connection nothing is there yet when the proxy looks, so it waits for the request and
/// for the answer. Under load several connections are ready at once and share one of these.
const WAITING: [&str; 3] = ["epoll_wait", "epoll_pwait", "epoll_pwait2"];

/// All that moves bytes by sockets here; `read` and `write` are of the descriptor by which the thread is woken.
const MOVING: [&str; 6] = ["readv", "recvfrom", "recvmsg", "sendmsg", "sendto", "writev"];

/// What the thread does in a second beside requests: a ticker every tenth of it, and what follows from that.
const IDLE_PER_SECOND: i64 = 50;

fn ask(stream: &mut TcpStream, n: u64) -> Result<()> {
    for number in 0..n {
        let request = format!("GET /{number} HTTP/1.1\r\nHost: any\r\n\r\n");
        let response = exchange(stream, request.as_bytes())?;
        ensure!(response.status == 200, "request {number}: {}", response.raw_head);
    }
    Ok(())
}

/// The thread of the only worker.
fn worker_thread(agent: &Agent) -> Result<i32> {
    let tasks = fs::read_dir(format!("/proc/{}/task", agent.worker()))?;
    let names = tasks.flatten().map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        (name.trim_end().to_owned(), task.file_name().to_string_lossy().into_owned())
    });
    let found = names.into_iter().find(|(name, _)| name == "proxy-0");
    found.context("no thread proxy-0")?.1.parse().context("the number of a thread")
}

fn is_traced(thread: i32) -> Result<bool> {
    let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    Ok(tracer.context("no TracerPid")?.trim() != "0")
}

/// The system calls of the thread, by name, during `work`.
fn traced(
    lab: &Lab,
    thread: i32,
    name: &str,
    work: impl FnOnce() -> Result<()>,
) -> Result<BTreeMap<String, u64>> {
    let program = lab::require_program("strace", "strace")?;
    let summary: PathBuf = lab.folder().join(format!("{name}.summary"));
    let strace = Command::new(name, program)
        .args(["-c", "-p", &thread.to_string(), "-o", &summary.to_string_lossy()])
        .start(lab)?;
    eventually("strace has attached", || {
        strace.check_running()?;
        ensure!(is_traced(thread)?, "not yet");
        Ok(())
    })?;
    work()?;
    // It lets go and writes its summary.
    strace.signal(Signal::SIGINT)?;
    strace.wait_exit(DEADLINE)?;
    let text = fs::read_to_string(&summary).with_context(|| format!("no summary:\n{}", strace.log()))?;
    parse(&text).with_context(|| format!("not a summary:\n{text}"))
}

/// `% time, seconds, usecs/call, calls, [errors,] syscall`.
fn parse(text: &str) -> Result<BTreeMap<String, u64>> {
    let mut calls = BTreeMap::new();
    for line in text.lines() {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (Some(number), Some(name)) = (columns.get(3), columns.last()) else { continue };
        // Neither the head nor a ruler, nor the sum at the end.
        if let Ok(number) = number.parse()
            && columns.len() >= 5
            && *name != "total"
        {
            calls.insert((*name).to_owned(), number);
        }
    }
    ensure!(!calls.is_empty(), "no system call");
    Ok(calls)
}

#[test]
fn request_in_steady_state_costs_four_system_calls() {
    routed(1, |lab| {
        serve_http(lab, 1, &[("route", &[], &[("", &[("web-1", 80, 1)])])])?;
        let _servers = identities(lab, 1)?;
        let options = AgentOptions { workers: 1, ..AgentOptions::new(Datapath::Userspace) };
        let agent = Agent::start(lab, &options)?;
        let thread = worker_thread(&agent)?;
        let mut stream = connect(lab.client(), lab.at_gateway(Family::V4, 80))?;
        // Buffers are there and connections to both addresses of the backend are kept after these.
        ask(&mut stream, 100)?;
        let short = traced(lab, thread, "strace-short", || ask(&mut stream, SHORT))?;
        let started = Instant::now();
        let long = traced(lab, thread, "strace-long", || ask(&mut stream, LONG))?;
        let seconds = started.elapsed().as_secs().cast_signed() + 1;
        let grown: BTreeMap<&str, i64> = long
            .iter()
            .map(|(name, calls)| {
                let before = short.get(name).copied().unwrap_or(0);
                (name.as_str(), calls.cast_signed() - before.cast_signed())
            })
            .collect();
        let n = (LONG - SHORT).cast_signed();
        let is_waiting = |name: &str| WAITING.contains(&name);
        let sum = |wanted: &dyn Fn(&str) -> bool| -> i64 {
            grown.iter().filter(|(name, _)| wanted(name)).map(|(_, calls)| *calls).sum()
        };
        // Receive, send on, receive, send back.
        let moving = sum(&|name| MOVING.contains(&name));
        ensure!(moving >= 4 * n && moving <= 4 * n + n / 50, "{n} requests took {grown:?}");
        let idle = seconds * IDLE_PER_SECOND;
        let all = sum(&|name| !is_waiting(name));
        ensure!(all <= 4 * n + n / 50 + idle, "{n} requests in {seconds} s took {grown:?}");
        // For the request, and for its answer.
        let waiting = sum(&is_waiting);
        ensure!(waiting <= 2 * n + n / 50 + idle, "{n} requests in {seconds} s took {grown:?}");
        Ok(())
    });
}
