//! h2load of nghttp2: its arguments, and what its output says.
//!
//! **Invariant:** no I/O. Where each request has a connection of its own, it may never end: vegeta makes those. And
//! it measures latencies, for h2load sends in bursts where it is to be steady.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::scenario::{Scenario, Traffic};
use super::{CIPHER, CURVE, Done};

/// `call` holds the body of a gRPC call.
pub(super) fn arguments(scenario: &Scenario, to: SocketAddr, call: &Path, length: Duration) -> Vec<String> {
    let (connections, streams) = scenario.concurrency();
    let mut args =
        vec![format!("-D{}ms", length.as_millis()), format!("-c{connections}"), format!("-m{streams}")];
    if !scenario.is_http_2() {
        args.push("--h1".into());
    }
    if scenario.is_tls {
        args.extend([format!("--tls13-ciphers={CIPHER}"), format!("--groups={CURVE}")]);
    }
    match scenario.traffic {
        Traffic::Calls => args.extend([
            format!("--data={}", call.display()),
            "--header=content-type: application/grpc".into(),
            "--header=te: trailers".into(),
        ]),
        Traffic::Kept | Traffic::Connections | Traffic::Streams => {}
    }
    args.push(format!("--connect-to={to}"));
    args.push(scenario.url(&scenario.host()));
    args
}

/// Fails where what was measured is not what was meant; answers that are wrong are counted.
pub(super) fn parse(text: &str, scenario: &Scenario) -> Result<Done> {
    let said = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name:?}"))
    };
    let protocol = match (scenario.is_http_2(), scenario.is_tls) {
        (false, _) => "http/1.1",
        (true, false) => "h2c",
        (true, true) => "h2",
    };
    let spoken = said("Application protocol: ")?;
    ensure!(spoken == protocol, "{spoken} was spoken instead of {protocol}");
    if scenario.is_tls {
        ensure!(said("TLS Protocol: ")? == "TLSv1.3", "another version of TLS was spoken");
        ensure!(said("Cipher: ")? == CIPHER, "another cipher was chosen");
        ensure!(said("Server Temp Key: ")?.starts_with(CURVE), "another curve was chosen");
    }
    let requests = said("requests: ")?;
    let (done, succeeded) = (count(requests, "done")?, count(requests, "succeeded")?);
    ensure!(done > 0, "nothing was answered");
    let statuses = said("status codes: ")?;
    let elsewhere = count(statuses, "3xx")?;
    let traffic = said("traffic: ")?;
    // A call that has no answer of its own is one too: a status of gRPC without a message.
    let data: u64 = traffic
        .strip_suffix(" data")
        .and_then(|rest| rest.rsplit_once('(')?.1.strip_suffix(')')?.parse().ok())
        .context("no count of data")?;
    let wrong = done.saturating_sub(succeeded) + elsewhere + misfits(scenario, succeeded, data);
    let complaint =
        (wrong > 0).then(|| format!("requests: {requests}; status codes: {statuses}; {data} bytes"));
    Ok(Done { requests: done as f64, wrong, complaint })
}

/// The number before `word` in a list with commas.
fn count(list: &str, word: &str) -> Result<u64> {
    list.split(", ")
        .find_map(|item| item.strip_suffix(word)?.trim().parse().ok())
        .with_context(|| format!("no count of {word:?} in {list:?}"))
}

/// How many bodies are missing or too many, but for those that were under way at either end.
fn misfits(scenario: &Scenario, succeeded: u64, data: u64) -> u64 {
    let body = scenario.body_bytes as u64;
    let (connections, streams) = scenario.concurrency();
    let tolerated = (connections * streams) as u64 * body;
    let difference = (succeeded * body).abs_diff(data);
    if difference > tolerated { difference.div_ceil(body) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::Site;
    use super::*;

    fn scenario(name: &str) -> Scenario {
        Site::example(name).scenario
    }

    fn output(head: &str, requests: &str, statuses: &str, data: u64) -> String {
        format!(
            "starting benchmark...\n{head}\nfinished in 1.01s, 100.00 req/s, 2.68MB/s\nrequests: {requests}\n\
             status codes: {statuses}\ntraffic: 2.68MB (2810504) total, 1.85MB (1939764) headers \
             (space savings 0.00%), 173.79KB ({data}) data\n"
        )
    }

    const CLEAR: &str = "Application protocol: http/1.1\n";
    const GOOD: &str = "100 total, 164 started, 100 done, 100 succeeded, 0 failed, 0 errored, 0 timeout";
    const OK: &str = "100 2xx, 0 3xx, 0 4xx, 0 5xx";

    #[test]
    fn answers_that_fit_are_right() {
        let done = parse(&output(CLEAR, GOOD, OK, 11_110), &scenario("h1")).expect("valid");
        assert_eq!((done.requests, done.wrong, done.complaint), (100.0, 0, None));
    }

    #[test]
    fn failures_redirects_and_bodies_of_another_size_are_wrong() {
        let wrong = |requests: &str, statuses: &str, data: u64| {
            parse(&output(CLEAR, requests, statuses, data), &scenario("h1")).expect("valid").wrong
        };
        let failed = "100 total, 164 started, 100 done, 97 succeeded, 3 failed, 2 errored, 0 timeout";
        assert_eq!(wrong(failed, "97 2xx, 0 3xx, 3 4xx, 0 5xx", 10_670), 3);
        assert_eq!(wrong(GOOD, "98 2xx, 2 3xx, 0 4xx, 0 5xx", 11_000), 2);
        // Of 64 connections, as many bodies may be under way.
        assert_eq!([wrong(GOOD, OK, 11_000 - 64 * 110), wrong(GOOD, OK, 0)], [0, 100]);
    }

    #[test]
    fn another_protocol_cipher_or_curve_is_no_measurement() {
        let tls = |version: &str, cipher: &str, curve: &str| {
            let head = format!(
                "TLS Protocol: {version}\nCipher: {cipher}\nServer Temp Key: {curve} 253 bits\n{CLEAR}"
            );
            parse(&output(&head, GOOD, OK, 11_000), &scenario("tls-h1"))
        };
        assert!(tls("TLSv1.3", CIPHER, CURVE).is_ok());
        assert!(tls("TLSv1.2", CIPHER, CURVE).is_err());
        assert!(tls("TLSv1.3", "TLS_AES_256_GCM_SHA384", CURVE).is_err());
        assert!(tls("TLSv1.3", CIPHER, "ECDH").is_err());
        assert!(parse(&output(CLEAR, GOOD, OK, 11_000), &scenario("h2c")).is_err());
        assert!(parse(&output("", GOOD, OK, 11_000), &scenario("h1")).is_err());
    }

    #[test]
    fn a_run_without_an_answer_is_no_measurement() {
        let none = "0 total, 0 started, 0 done, 0 succeeded, 0 failed, 0 errored, 0 timeout";
        assert!(parse(&output(CLEAR, none, "0 2xx, 0 3xx, 0 4xx, 0 5xx", 0), &scenario("h1")).is_err());
    }

    #[test]
    fn each_scenario_is_asked_in_its_own_way() {
        let to = "10.0.1.1:80".parse().expect("valid");
        let of = |name: &str| {
            arguments(&scenario(name), to, Path::new("/c"), Duration::from_millis(1500)).join(" ")
        };
        assert_eq!(of("h1-10k"), "-D1500ms -c64 -m1 --h1 --connect-to=10.0.1.1:80 http://h5000.example.com/");
        assert!(of("grpc").contains("--data=/c "));
        assert!(of("tls-h2").contains("--tls13-ciphers") && !of("tls-h2").contains("--h1"));
    }
}
