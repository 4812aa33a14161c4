//! A run of the suite's binary: its flags, what it prints, and what came out.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use super::cluster::{OUTSIDE, kubeconfig};
use super::install::Mode;
use super::{CLASS, folder};
use crate::command::root;

pub(super) struct Selection<'a> {
    pub(super) binary: &'a Path,
    pub(super) mode: Mode,
    pub(super) features: &'a [String],
    pub(super) profiles: &'a [String],
    pub(super) tests: Tests<'a>,
}

/// Which of the suite's tests. Only all of them give a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tests<'a> {
    All,
    One(&'a str),
    /// Those that read status only, also for features that are not claimed.
    Status,
    /// The same, and one with traffic for each kind of route.
    Short,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) passed: usize,
    pub(super) skipped: usize,
    pub(super) failed: Vec<String>,
}

/// The one test that needs a right at cluster scope from whoever acknowledges classes.
const CLASS_TEST: &str = "GatewayClassObservedGenerationBump";

/// The whole suite takes some 20 minutes on two cores; a test waits for 5 at most.
const LIMIT: &str = "-test.timeout=60m";

/// Tests marked as parallel wait most of the time.
const PARALLEL: &str = "-test.parallel=4";

/// An address that the cluster's load balancer gives out on demand, and one that nobody there can have.
const USABLE: &str = "172.31.1.250";
const UNUSABLE: &str = "192.0.2.1";

pub(super) fn run(selection: &Selection<'_>) -> Result<Outcome> {
    let start = Instant::now();
    let name = match selection.tests {
        Tests::All => "suite",
        Tests::One(name) => name,
        Tests::Status => "status",
        Tests::Short => "short",
    };
    let path = folder().join(format!("{}-{name}.log", selection.mode.name()));
    let mut log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    println!("conformance: running, all output in {}", path.display());
    let mut child = Command::new("nsenter")
        .arg(format!("--net={OUTSIDE}"))
        .arg(selection.binary)
        .args(flags(selection)?)
        .env("KUBECONFIG", kubeconfig())
        .current_dir(folder())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.try_clone()?)
        .spawn()
        .context("cannot start the suite")?;
    let mut outcome = Outcome::default();
    for line in BufReader::new(child.stdout.take().context("the suite has a standard output")?).split(b'\n') {
        let line = line?;
        log.write_all(&line)?;
        log.write_all(b"\n")?;
        if outcome.read(&String::from_utf8_lossy(&line)) {
            println!("{}", String::from_utf8_lossy(&line).trim());
        }
    }
    let status = child.wait()?;
    println!(
        "conformance: {} passed, {} failed, {} skipped in {:.0} s",
        outcome.passed,
        outcome.failed.len(),
        outcome.skipped,
        start.elapsed().as_secs_f64()
    );
    if !status.success() && outcome.failed.is_empty() {
        bail!("the suite failed outside of its tests ({status}): see {}", path.display());
    }
    ensure!(outcome.passed + outcome.failed.len() > 0, "the suite ran no test: see {}", path.display());
    Ok(outcome)
}

impl Outcome {
    /// Counts a line of a test of the suite, and says whether it is worth a look.
    fn read(&mut self, line: &str) -> bool {
        // One level below the one test of the binary; deeper ones are parts of a test.
        let Some(rest) = line.strip_prefix("    --- ") else { return false };
        let Some((result, rest)) = rest.split_once(": ") else { return false };
        let name = rest.split([' ', '/']).nth(1).unwrap_or(rest);
        match result {
            "PASS" => self.passed += 1,
            "SKIP" => self.skipped += 1,
            "FAIL" => self.failed.push(name.to_owned()),
            _ => return false,
        }
        result != "SKIP"
    }
}

fn flags(selection: &Selection<'_>) -> Result<Vec<String>> {
    let test = match selection.tests {
        Tests::All | Tests::One(_) => "TestConformance",
        Tests::Status | Tests::Short => "TestStatusOnly",
    };
    let mut flags = vec![
        format!("-test.run=^{test}$"),
        "-test.v".to_owned(),
        LIMIT.to_owned(),
        PARALLEL.to_owned(),
        format!("--gateway-class={CLASS}"),
        format!("--mode={}", selection.mode.name()),
        format!("--supported-features={}", selection.features.join(",")),
        format!("--conformance-profiles={}", selection.profiles.join(",")),
        format!("--usable-address={USABLE}"),
        format!("--unusable-address={UNUSABLE}"),
    ];
    if selection.mode == Mode::RolesOnly {
        // The namespaces hold the agent's rights; the runner removes them.
        flags.push("--cleanup-base-resources=false".to_owned());
        flags.push(format!("--skip-tests={CLASS_TEST}"));
    }
    match selection.tests {
        Tests::All => flags.extend(report(selection)?),
        Tests::One(name) => flags.push(format!("--run-test={name}")),
        Tests::Status => {}
        Tests::Short => flags.push("--with-traffic".to_owned()),
    }
    Ok(flags)
}

/// Where the report goes, and what it says of us.
fn report(selection: &Selection<'_>) -> Result<Vec<String>> {
    let version = env!("CARGO_PKG_VERSION");
    let folder: PathBuf = root().join("tests/conformance/reports");
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("standard-{version}-{}-report.yaml", selection.mode.name()));
    Ok(vec![
        format!("--report-output={}", path.display()),
        "--organization=gateway-agent".to_owned(),
        "--project=gateway-agent".to_owned(),
        "--url=https://gateway-agent.dev".to_owned(),
        format!("--version={version}"),
        "--contact=https://gateway-agent.dev".to_owned(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_suites_own_tests_count() {
        let mut outcome = Outcome::default();
        let lines = [
            "=== RUN   TestConformance/HTTPRouteMatching",
            "    --- PASS: TestConformance/HTTPRouteMatching (1.02s)",
            "        --- PASS: TestConformance/HTTPRouteMatching/0_request_to_'/' (1.00s)",
            "    --- SKIP: TestConformance/HTTPRouteCORS (0.01s)",
            "    --- FAIL: TestConformance/HTTPRouteWeight (30.00s)",
            "--- FAIL: TestConformance (99.00s)",
        ];
        for line in lines {
            outcome.read(line);
        }
        assert_eq!(outcome, Outcome { passed: 1, skipped: 1, failed: vec!["HTTPRouteWeight".to_owned()] });
    }
}
