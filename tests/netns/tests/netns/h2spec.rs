//! h2spec, an independent suite of HTTP/2 and HPACK, against listeners in clear and by TLS, before servers of either version.

use anyhow::{Context as _, Result, ensure};
use lab::{Agent, AgentOptions, Datapath, Family, Lab, eventually, suites};

use crate::bed::{on_each_datapath, routed};
use crate::http::identities;
use crate::http2::{curl, nghttpd, serve};

/// All of version 2.2.1, those that it calls strict among them.
const N_CASES: usize = 146;

/// What begins otherwise than HTTP/2 is HTTP/1 to a listener in clear, and gets its answer: 400 and the connection's end.
/// The suite wants the end alone.
const IN_CLEAR: &[&str] = &["http2/3.5: Sends invalid connection preface"];

on_each_datapath!(no_case_of_h2spec_fails_but_what_a_listener_for_both_versions_answers_otherwise);

// O28, O31, O32
fn no_case_of_h2spec_fails_but_what_a_listener_for_both_versions_answers_otherwise(datapath: Datapath) {
    routed(1, |lab| {
        serve(lab)?;
        let folder = lab.folder().join("htdocs");
        std::fs::create_dir_all(&folder).context("make a folder")?;
        std::fs::write(folder.join("h2c"), "x".repeat(2_000)).context("write")?;
        let _server_of_h2 = nghttpd(lab, &folder)?;
        let _servers = identities(lab, 1)?;
        let agent = Agent::start(lab, &AgentOptions::new(datapath))?;
        let in_clear = ["--port=80"];
        let by_tls = ["--port=443", "--tls", "--insecure"];
        eventually("the server is up", || {
            curl(lab, Family::V4, &["--fail", "--http2-prior-knowledge", "http://one.example.com/h2c"])
        })?;
        for path in ["/", "/h2c"] {
            for (how, failing) in [(&in_clear[..], IN_CLEAR), (&by_tls[..], &[])] {
                let mut args = how.to_vec();
                let path = format!("--path={path}");
                args.push(&path);
                let failed = h2spec(lab, &args)?;
                ensure!(failed == failing, "{args:?}: {failed:?} fail, expected {failing:?}");
            }
        }
        // What clients send is nothing that a human must look at.
        let warned: Vec<String> =
            agent.log().lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect();
        ensure!(warned.is_empty(), "{warned:?}");
        Ok(())
    });
}

/// The cases that fail, as `SECTION: NAME`.
fn h2spec(lab: &Lab, args: &[&str]) -> Result<Vec<String>> {
    let report = lab.folder().join("h2spec.xml");
    let host = format!("--host={}", lab.gateway_address(Family::V4));
    let to = format!("--junit-report={}", report.display());
    let mut words = vec!["--strict", "--timeout=20", &host, &to];
    words.extend(args);
    // It fails where a case does; which, the report says.
    let ended = lab.client().output(&suites::find("h2spec")?, &words);
    let text = std::fs::read_to_string(&report).with_context(|| format!("h2spec: {ended:?}"))?;
    std::fs::remove_file(&report).context("remove the report")?;
    let (mut n_cases, mut case, mut failed) = (0, String::new(), Vec::new());
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("<testcase ") {
            n_cases += 1;
            let attribute = |name: &str| Some(line.split_once(&format!("{name}=\""))?.1.split_once('"')?.0);
            let (section, name) = (attribute("package"), attribute("classname"));
            case = format!("{}: {}", section.unwrap_or_default(), name.unwrap_or_default());
        } else if line.starts_with("<error") || line.starts_with("<failure") || line.starts_with("<skipped") {
            failed.push(std::mem::take(&mut case));
        }
    }
    ensure!(n_cases == N_CASES, "{n_cases} cases: {ended:?}");
    Ok(failed)
}
