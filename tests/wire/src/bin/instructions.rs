//! Does one of the hot paths over and over, to be counted or timed: see `cargo xtask instructions`.
//!
//! `--list` names them, `NAME` does one, `--time NAME` says how many nanoseconds of this thread each time takes.

use std::time::Duration;

use wire_tests::paths::{HOT_PATHS, HotPath, TIMES, Work};

/// Of these the fastest counts: whatever else the machine does only adds to the others.
const ROUNDS: usize = 20;

/// For each round of `--time`, or the clock would be measured too.
const TIMES_OF_ROUND: usize = 100_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => HOT_PATHS.iter().for_each(|path| println!("{} {TIMES}", path.name)),
        ["--time", name] => {
            let mut work = prepare(name);
            let fastest = (0..ROUNDS).map(|_| time(&mut work)).min().unwrap_or_default();
            println!("{:.1}", fastest.as_nanos() as f64 / TIMES_OF_ROUND as f64);
        }
        [name] => measured(&mut prepare(name), TIMES),
        _ => panic!("usage: instructions --list | NAME | --time NAME"),
    }
}

fn prepare(name: &str) -> Work {
    let path = HotPath::named(name).unwrap_or_else(|| panic!("no hot path is called {name}: see --list"));
    let mut work = (path.prepare)();
    // What is done only once, such as asking for the processor's features.
    (0..TIMES / 10).for_each(&mut work);
    work
}

/// Callgrind counts in here only.
#[inline(never)]
fn measured(work: &mut Work, times: usize) {
    (0..times).for_each(work);
}

fn time(work: &mut Work) -> Duration {
    let start = cpu_time();
    measured(work, TIMES_OF_ROUND);
    cpu_time() - start
}

/// Of this thread: time that others get is not counted.
fn cpu_time() -> Duration {
    let time =
        nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has it");
    Duration::from(time)
}
