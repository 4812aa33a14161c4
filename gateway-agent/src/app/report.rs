//! What the user sees: findings, the table of conditions, the admin server's texts.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::watch;

use super::cluster::ClusterView;
use crate::admin::Source;
use crate::control::Control;
use crate::drain::Drain;
use crate::ebpf::Monitor;
use crate::manifests::{Finding, Load, ObjectId, Severity};
use crate::metrics::{Extra, KernelFlows, Metrics, encode};
use crate::snapshot::{ListenerName, Revision};
use crate::status::view::{ObjectView, snapshot_view};
use crate::status::{self, Applied, Changes, ObjectProblem, Served};
use crate::store::Store;
use crate::translate::{Config, translate};

/// Before there is a log.
pub(super) fn usage_error(error: &anyhow::Error) {
    // Standard error may be closed; the exit code says it too.
    drop(writeln!(std::io::stderr(), "gateway-agent: {error:#}"));
}

/// Says each thing once.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    findings: BTreeSet<Finding>,
    is_silent: bool,
}

impl Reporter {
    /// `is_silent`: conditions are told elsewhere.
    pub(super) fn new(is_silent: bool) -> Self {
        Self { is_silent, ..Self::default() }
    }

    /// Logs findings that are new.
    pub(super) fn findings(&mut self, findings: &[Finding]) {
        let current: BTreeSet<Finding> = findings.iter().cloned().collect();
        for finding in current.difference(&self.findings) {
            match finding.severity {
                Severity::Error => tracing::error!("{finding}"),
                Severity::Warning => tracing::warn!("{finding}"),
            }
        }
        if current.is_empty() && !self.findings.is_empty() {
            tracing::info!("the manifests are free of findings again");
        }
        self.findings = current;
    }

    /// Prints what changed to standard output, where nobody can look it up in the API.
    pub(super) fn conditions(&self, changes: &Changes) {
        if changes.is_empty() || self.is_silent {
            return;
        }
        let mut out = std::io::stdout().lock();
        if let Err(error) = out.write_all(changes.render().as_bytes()).and_then(|()| out.flush()) {
            tracing::debug!(%error, "cannot print conditions");
        }
    }
}

/// What the admin server tells, read at each request.
#[derive(Debug)]
pub(super) struct AdminSource {
    pub(super) control: Rc<RefCell<Control>>,
    pub(super) proxy: watch::Receiver<Arc<Applied>>,
    pub(super) kernel: watch::Receiver<Arc<Applied>>,
    pub(super) loads: watch::Receiver<Arc<Load>>,
    pub(super) monitor: Arc<Monitor>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) drain: Drain,
    /// With a Kubernetes API only.
    pub(super) cluster: Option<ClusterView>,
}

impl AdminSource {
    /// How each data path serves each listener.
    fn listener_paths(&self, control: &Control) -> Vec<(ListenerName, &'static str, &'static str)> {
        let (proxy, kernel) = (self.proxy.borrow(), self.kernel.borrow());
        let mut paths = Vec::new();
        for listener in control.listeners() {
            for (path, applied) in [("proxy", &proxy), ("kernel", &kernel)] {
                if let Some(served) = applied.listeners.get(&listener.key) {
                    let entry = |name: &ListenerName| (name.clone(), path, mechanism(served));
                    paths.extend(listener.names.iter().map(entry));
                }
            }
        }
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// What flows in the kernel carried, by the Gateway listener. A listener of several names has one route at most.
    fn kernel_listeners(&self, control: &Control) -> Vec<(ListenerName, KernelFlows)> {
        let mut sums: BTreeMap<ListenerName, KernelFlows> = BTreeMap::new();
        for (key, counted) in self.monitor.listeners() {
            let Some(listener) = control.listeners().iter().find(|listener| listener.key == key) else {
                continue;
            };
            let Some(name) = listener.names.first() else { continue };
            let sum = sums.entry(name.clone()).or_default();
            sum.flows += counted.flows;
            sum.received_bytes += counted.received_bytes;
            sum.sent_bytes += counted.sent_bytes;
        }
        sums.into_iter().collect()
    }
}

impl Source for AdminSource {
    fn ready(&self) -> Result<(), &'static str> {
        if self.drain.is_stopping() {
            Err("draining")
        } else if self.proxy.borrow().revision == Revision(0) || self.kernel.borrow().revision == Revision(0)
        {
            Err(match &self.cluster {
                Some(_) if !self.control.borrow().is_synced() => {
                    "the Kubernetes API has not told everything yet: /snapshot says what is waited for"
                }
                _ => "no snapshot is in force yet",
            })
        } else {
            Ok(())
        }
    }

    fn metrics(&self) -> String {
        let control = self.control.borrow();
        let findings = self.loads.borrow().findings.len();
        let paths = self.monitor.paths();
        let extra = Extra {
            revision: control.revision().0,
            manifest_findings: u64::try_from(findings).unwrap_or(u64::MAX),
            kernel: self.monitor.counters(),
            kernel_gauges: vec![
                ("flows", self.monitor.flows()),
                ("unplaced_listeners", self.monitor.unplaced()),
            ],
            kernel_listeners: self.kernel_listeners(&control),
            datapaths: vec![
                ("l4", paths.l4.mechanism.unwrap_or("userspace")),
                ("steering", paths.steering.mechanism.unwrap_or("bind")),
            ],
            listeners: self.listener_paths(&control),
            cluster: self.cluster.as_ref().map(|cluster| cluster.numbers(&control)),
        };
        encode(&self.metrics, &extra)
    }

    fn snapshot(&self) -> serde_json::Value {
        let control = self.control.borrow();
        let statuses = control.statuses(&self.proxy.borrow(), &self.kernel.borrow());
        let objects: Vec<ObjectView> = statuses.iter().map(|status| ObjectView::from(&**status)).collect();
        let served = snapshot_view(&control.snapshot(), &self.proxy.borrow(), Some(&self.kernel.borrow()));
        let findings: Vec<String> = self.loads.borrow().findings.iter().map(Finding::to_string).collect();
        let paths = self.monitor.paths();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "snapshot": served,
            "datapaths": {"l4": paths.l4.to_string(), "steering": paths.steering.to_string()},
            "objects": objects,
            "findings": findings,
            "cluster": self.cluster.as_ref().map(|cluster| cluster.json(&control)),
        })
    }
}

fn mechanism(served: &Served) -> &'static str {
    match served {
        Served::By(mechanism) => mechanism,
        Served::Left(_) => "left",
        Served::Failed { .. } => "failed",
    }
}

/// Conditions that speak of a fault in an object, as findings of `check`. What only a data path can tell, such as a port
/// that is taken, is not among them.
pub(super) fn condition_findings(load: &Load, config: &Config) -> Vec<Finding> {
    let mut store = Store::default();
    store.replace_all(&load.objects);
    let problems = status::problems(&translate(&store, config).statuses);
    let finding = |problem: ObjectProblem| {
        let ObjectProblem { kind, name, field, is_error, message } = problem;
        let is_it = |id: &&ObjectId| id.kind.as_str() == kind && id.name == name;
        let id = load.places.iter().map(|(id, _)| id).find(is_it)?;
        load.finding(id, &field, if is_error { Severity::Error } else { Severity::Warning }, message)
    };
    problems.into_iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::condition_findings;
    use crate::manifests::{self, Outcome};
    use crate::translate::Config;

    const ROUTE: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: TCPRoute\nmetadata: {name: r}\nspec:\n  \
                         parentRefs: [{name: g}]\n  rules: [{backendRefs: [{name: absent, port: 1}]}]\n---\n\
                         apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: g}\nspec:\n  \
                         gatewayClassName: gateway-agent\n  listeners: [{name: l, protocol: TCP, port: 1}]\n";

    #[test]
    fn check_tells_faults_that_only_show_when_objects_are_put_together() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("a.yaml"), ROUTE).expect("written");
        let mut out = Vec::new();
        let outcome =
            manifests::check(dir.path(), &mut out, |load| condition_findings(load, &Config::default()));
        let text = String::from_utf8(out).expect("text");
        assert_eq!(outcome, Outcome::Findings, "{text}");
        let expected = "a.yaml:1: document 1: spec.rules: BackendNotFound: ";
        assert!(text.contains(expected), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}
