//! The run with Roles only: what stands in for whoever administers the namespaces, and acknowledges the class.
//!
//! The suite makes and deletes namespaces as it goes, where no Role can have been granted before. A process here waits for
//! them and grants the same Role in each, as their administrator would.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::CLASS;
use super::cluster::{apply_text, kubectl, kubectl_command};
use super::install::{SUITE_NAMESPACES, written};

/// Where the agent's pods are: none of the suite's namespaces.
pub(super) const HOME: &str = "gateway-agent-team";

/// Made and deleted by the suite's tests of ListenerSets.
pub(super) const OF_TESTS: [&str; 7] = [
    "gateway-api-listenerset-not-allowed-ns",
    "gateway-api-listenerset-selector-allowed-ns",
    "gateway-api-listenerset-selector-not-allowed-ns",
    "gateway-api-routes-allowed-ns",
    "gateway-api-routes-not-allowed-ns",
    "gateway-api-ls-cross-ns",
    "gateway-api-listener-sets-test-reference-grant-ns",
];

pub(super) fn watched() -> Vec<&'static str> {
    SUITE_NAMESPACES.into_iter().chain(OF_TESTS).collect()
}

/// The namespaces that are there from the start, with the rights in them. The suite updates what it finds.
pub(super) fn namespaces() -> Result<()> {
    for name in SUITE_NAMESPACES.into_iter().chain([HOME]) {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        apply_text(&namespace.to_string(), &[])?;
    }
    let rights = rights()?;
    SUITE_NAMESPACES.into_iter().try_for_each(|namespace| grant(&rights, namespace))
}

/// The class is accepted and has its features, as the acknowledger would write it.
pub(super) fn acknowledge(features: &[String]) -> Result<()> {
    let mut names = features.to_vec();
    names.sort();
    let names: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
    let generation = kubectl(["get", "gatewayclass", CLASS, "--output=jsonpath={.metadata.generation}"])?;
    let time = kubectl(["get", "gatewayclass", CLASS, "--output=jsonpath={.metadata.creationTimestamp}"])?;
    let status = json!({ "status": {
        "conditions": [{
            "type": "Accepted",
            "status": "True",
            "reason": "Accepted",
            "message": "acknowledged by the runner of the conformance suite",
            "observedGeneration": generation.trim().parse::<u64>().context("a class has a generation")?,
            "lastTransitionTime": time.trim(),
        }],
        "supportedFeatures": names,
    }});
    let patch = format!("--patch={status}");
    kubectl(["patch", "gatewayclass", CLASS, "--subresource=status", "--type=merge", &patch]).map(drop)
}

/// `deploy/watched-namespace` for the agent in `HOME`.
fn rights() -> Result<String> {
    let subject = json!([{ "op": "replace", "path": "/subjects/0/namespace", "value": HOME }]);
    let folder = written(
        "watched-namespace",
        json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "patches": [{ "target": { "kind": "RoleBinding" }, "patch": subject.to_string() }],
        }),
        "deploy/watched-namespace",
    )?;
    kubectl([std::ffi::OsStr::new("kustomize"), folder.as_os_str()])
}

fn grant(rights: &str, namespace: &str) -> Result<()> {
    apply_text(rights, &["--namespace", namespace])
}

/// Grants the rights in each namespace that a test makes, until it is dropped.
pub(super) struct Granter {
    watch: Child,
    thread: Option<JoinHandle<()>>,
}

impl Granter {
    pub(super) fn start() -> Result<Self> {
        let rights = rights()?;
        let mut watch = kubectl_command([
            "get",
            "namespaces",
            "--watch",
            "--output=jsonpath={.metadata.name} {.status.phase}{\"\\n\"}",
        ])
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start kubectl")?;
        let lines = BufReader::new(watch.stdout.take().context("kubectl has a standard output")?).lines();
        let thread = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let Some((name, "Active")) = line.split_once(' ') else { continue };
                if !OF_TESTS.contains(&name) {
                    continue;
                }
                // It may be gone again: then no test waits for it.
                if let Err(error) = grant(&rights, name) {
                    eprintln!("conformance: no rights in {name}: {error:#}");
                }
            }
        });
        Ok(Self { watch, thread: Some(thread) })
    }
}

impl Drop for Granter {
    fn drop(&mut self) {
        if let Err(error) = self.watch.kill().and_then(|()| self.watch.wait()) {
            eprintln!("conformance: kubectl does not stop: {error}");
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("conformance: the thread that grants rights panicked");
        }
    }
}
