//! vegeta: requests at a steady rate, whatever the answers take, or with a connection for each; every answer's time.
//!
//! It offers TLS in the order of Go's library: what the others are told to offer comes first.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Done;
use super::scenario::{Scenario, Traffic};
use crate::bench::wheel::folder;
use crate::command::{output, program};

const MODULE: &str = "github.com/tsenart/vegeta/v12";
pub(super) const VERSION: &str = "12.13.0";

/// X25519 alone instead of with ML-KEM: not every gateway knows that.
pub(super) const ENVIRONMENT: (&str, &str) = ("GODEBUG", "tlsmlkem=0");

/// Of a body, as much is kept until the end of the run: enough to tell one that is missing or of somebody else.
const BODY_KEPT: usize = 1024;

/// Requests under way at a steady rate: a gateway that has so many waiting does not keep up with it.
const UNDER_WAY_MAX: usize = 512;

/// How fast.
#[derive(Clone, Copy)]
pub(super) enum Drive {
    PerSecond(f64),
    /// As fast as it goes, with as many connections as the scenario has.
    Full,
}

/// What a run gave.
pub(super) struct Attack {
    pub(super) done: Done,
    pub(super) seconds: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// The program; built once, by Go.
pub(super) fn install() -> Result<PathBuf> {
    let folder = folder()?.join(format!("vegeta-{VERSION}"));
    let path = folder.join("vegeta");
    if !path.exists() {
        eprintln!("bench: building vegeta {VERSION}");
        fs::create_dir_all(&folder)?;
        let mut go = program("go");
        go.args(["install", &format!("{MODULE}@v{VERSION}")]).env("GOBIN", &folder).env("CGO_ENABLED", "0");
        output(&mut go).context("vegeta, which measures latencies, is built by Go (https://go.dev/dl)")?;
    }
    Ok(path)
}

/// The file of targets; `call` holds the body of a gRPC call.
pub(super) fn targets(scenario: &Scenario, to: SocketAddr, call: &Path) -> String {
    let url = scenario.url(&scenario.host());
    match scenario.traffic {
        Traffic::Calls => format!(
            "POST http://{to}{}\nHost: {}\ncontent-type: application/grpc\nte: trailers\n@{}\n",
            scenario.path(),
            scenario.host(),
            call.display()
        ),
        // Over HTTP/2 in clear it resolves names, whatever it is told to connect to.
        Traffic::Streams if !scenario.is_tls => format!("GET http://{to}/\nHost: {}\n", scenario.host()),
        _ => format!("GET {url}\n"),
    }
}

pub(super) struct Files<'a> {
    pub(super) targets: &'a Path,
    pub(super) results: &'a Path,
}

pub(super) fn attack(
    scenario: &Scenario,
    to: SocketAddr,
    authority: Option<&Path>,
    files: &Files<'_>,
    length: Duration,
    drive: Drive,
) -> Vec<String> {
    let (connections, _) = scenario.concurrency();
    let mut args = vec![
        "attack".to_owned(),
        format!("-targets={}", files.targets.display()),
        format!("-output={}", files.results.display()),
        format!("-duration={}ms", length.as_millis()),
        format!("-max-body={BODY_KEPT}"),
        "-timeout=10s".into(),
    ];
    match drive {
        Drive::PerSecond(rate) => {
            // A rate of 0 is none at all.
            args.extend([format!("-rate={:.0}/1s", rate.max(1.0)), format!("-max-workers={UNDER_WAY_MAX}")]);
        }
        Drive::Full => args.extend(["-rate=0".into(), format!("-max-workers={connections}")]),
    }
    match (scenario.traffic, scenario.is_tls) {
        (Traffic::Kept, _) => args.extend(["-http2=false".into(), format!("-max-connections={connections}")]),
        (Traffic::Connections, _) => args.extend(["-http2=false", "-keepalive=false"].map(Into::into)),
        (Traffic::Streams, true) => {}
        (Traffic::Streams | Traffic::Calls, _) => args.push("-h2c".into()),
    }
    args.push(format!("-connect-to={}:{}:{to}", scenario.host(), scenario.port()));
    args.extend(authority.map(|authority| format!("-root-certs={}", authority.display())));
    args
}

/// What `vegeta report -type=json` says; its times are nanoseconds.
pub(super) fn parse(text: &str, scenario: &Scenario) -> Result<Attack> {
    let report: Value = serde_json::from_str(text).context("vegeta reports in JSON")?;
    let number =
        |path: &str| report.pointer(path).and_then(Value::as_f64).with_context(|| format!("no {path}"));
    let requests = number("/requests")?;
    ensure!(requests > 0.0, "nothing was asked");
    let good = report.pointer("/status_codes/200").and_then(Value::as_f64).unwrap_or(0.0);
    let kept = scenario.body_bytes.min(BODY_KEPT) as f64;
    let missing = ((good * kept - number("/bytes_in/total")?).abs() / kept).ceil();
    // Of whole answers.
    let wrong = (requests - good + missing) as u64;
    let complaint =
        (wrong > 0).then(|| format!("statuses {}, errors {}", report["status_codes"], report["errors"]));
    Ok(Attack {
        done: Done { requests, wrong, complaint },
        seconds: (number("/duration")? + number("/wait")?) / 1e9,
        p50_us: number("/latencies/50th")? / 1e3,
        p99_us: number("/latencies/99th")? / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::super::scenario::Site;
    use super::*;

    fn report(statuses: &str, bytes: u64) -> String {
        format!(
            "{{\"latencies\":{{\"50th\":299256,\"99th\":1372269}},\"bytes_in\":{{\"total\":{bytes}}},\
             \"duration\":1400000000,\"wait\":100000000,\"requests\":3000,\"status_codes\":{statuses},\"errors\":[]}}"
        )
    }

    #[test]
    fn answers_without_200_or_with_another_size_are_wrong() {
        let parsed = |text: &str, name: &str| parse(text, &Site::example(name).scenario).expect("valid");
        let good = parsed(&report("{\"200\":3000}", 330_000), "h1");
        assert_eq!((good.done.wrong, good.seconds, good.p50_us), (0, 1.5, 299.256));
        assert_eq!(parsed(&report("{\"200\":2998,\"502\":2}", 2998 * 110), "h1").done.wrong, 2);
        assert_eq!(parsed(&report("{\"200\":3000}", 330_000 - 220), "h1").done.wrong, 2);
        assert_eq!(parsed(&report("{\"0\":3000}", 0), "h1").done.wrong, 3000);
        assert_eq!(parsed(&report("{\"200\":3000}", 3000 * 1024), "h1-64k").done.wrong, 0);
    }

    #[test]
    fn each_scenario_is_asked_in_its_own_way() {
        let to = "10.0.1.1:80".parse().expect("valid");
        let files = Files { targets: Path::new("/t"), results: Path::new("/r") };
        let of = |name: &str, drive| {
            let scenario = Site::example(name).scenario;
            attack(&scenario, to, None, &files, Duration::from_secs(1), drive).join(" ")
        };
        let steady = of("h1-10k", Drive::PerSecond(1234.5));
        assert!(steady.contains("-rate=1234/1s ") && steady.contains("-max-connections=64 "), "{steady}");
        assert!(steady.ends_with("-connect-to=h5000.example.com:80:10.0.1.1:80"), "{steady}");
        let connect = of("tls-connect", Drive::Full);
        assert!(connect.contains("-rate=0 -max-workers=32 -http2=false -keepalive=false"), "{connect}");
        assert!(of("grpc", Drive::Full).contains("-h2c") && !of("tls-h2", Drive::Full).contains("-h2c"));
        let calls = targets(&Site::example("grpc").scenario, to, Path::new("/c"));
        assert!(calls.starts_with("POST http://10.0.1.1:80/bench.Echo/Unary.grpc\nHost: h0.example.com\n"));
        assert!(calls.ends_with("\n@/c\n"));
    }
}
