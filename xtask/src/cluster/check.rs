//! What a cluster must be able to do, tried on the one that runs, in a namespace of its own; and that nothing is left
//! of one that went down, however it did.
//!
//! It tests the test cluster alone: no part of the agent is in it.

mod faults;
mod leftovers;
mod services;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lab::eventually_within;
use serde_json::{Value, json};

pub(super) use self::leftovers::test;
use super::network::lan;
use super::{Folder, addons, audit, images};
use crate::command::output;

const NAMESPACE: &str = "cluster-check";
const ACCOUNT: &str = "system:serviceaccount:cluster-check:checker";

/// Pods, addresses and rules of two nodes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

type Check = fn(&Folder) -> Result<()>;

const CHECKS: &[(&str, Check)] = &[
    ("both nodes are Ready", nodes),
    ("the Gateway API's definitions are established", definitions),
    ("pods run, on both nodes", pods),
    ("exec and logs reach a pod", exec_and_logs),
    ("names resolve to both families", services::dns),
    ("a Service answers pods, in both families", services::cluster_addresses),
    ("a LoadBalancer address answers from outside, in both families", services::load_balancer),
    ("a Service gets the LoadBalancer address that it asks for", services::wanted_address),
    ("with the policy Local only nodes with an endpoint are routed to", services::local_policy),
    ("without an endpoint it is unreachable, and with one again it is not", services::no_endpoint),
    ("the audit log has what a service account asked for", audit_log),
    ("the fault proxy passes on who asks", faults::passes_on),
    ("the fault proxy refuses, once", faults::refuses),
    ("the fault proxy delays, and drops answers of writes that happen", faults::delays_and_drops),
    ("the fault proxy ends, expires, holds and cuts watches", faults::orders_watches),
    ("the fault proxy takes no connections when told so", faults::resets_connections),
    ("addresses of a deleted Service are free and unrouted", services::removal),
];

/// Runs all, and says how many passed in the last line.
pub(super) fn run(folder: &Folder) -> Result<()> {
    lab::require_root()?;
    prepare(folder)?;
    let mut failed = 0;
    for (name, check) in CHECKS {
        failed += u32::from(!is_passed(name, || check(folder)));
    }
    kubectl(folder, &["delete", "namespace", NAMESPACE])?;
    close(CHECKS.len(), failed)
}

fn is_passed(name: &str, check: impl FnOnce() -> Result<()>) -> bool {
    let start = Instant::now();
    let result = check();
    let took = start.elapsed().as_secs_f64();
    match &result {
        Ok(()) => println!("cluster: {took:5.1} s  ok      {name}"),
        Err(error) => println!("cluster: {took:5.1} s  FAILED  {name}: {error:#}"),
    }
    result.is_ok()
}

/// The last line, in the form that `test` counts.
fn close(all: usize, failed: u32) -> Result<()> {
    println!("{} passed, {failed} failed", all - failed as usize);
    ensure!(failed == 0, "the test cluster lacks what it promises");
    Ok(())
}

fn kubectl(folder: &Folder, args: &[&str]) -> Result<String> {
    output(&mut folder.kubectl(args))
}

/// kubectl in the namespace of the checks.
fn inside(folder: &Folder, args: &[&str]) -> Result<String> {
    kubectl(folder, &[&["--namespace", NAMESPACE], args].concat())
}

/// curl on the network outside of the nodes; `args` besides the limit of time.
fn curl(args: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net=/run/netns/{}", lan()))
        .args(["curl", "--silent", "--show-error", "--max-time", "20"])
        .args(args);
    command
}

/// A web server on each node that says its pod's name, and a pod to ask from.
fn prepare(folder: &Folder) -> Result<()> {
    let labels = json!({ "app": "web" });
    let container = |name: &str, command: Value| json!({ "name": name, "image": images::TOOLS, "imagePullPolicy": "Never", "command": command });
    let mut web = container("web", json!(["/busybox", "httpd", "-f", "-p", "8080", "-h", "/etc"]));
    web["readinessProbe"] = json!({ "httpGet": { "path": "/hostname", "port": 8080 }, "periodSeconds": 1 });
    let client =
        container("client", json!(["/busybox", "sh", "-c", "echo started; exec /busybox sleep 3600"]));
    let spread = json!([{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": labels },
    }]);
    let meta = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
    let objects = [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("web"),
            "spec": {
                "replicas": 2,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [web], "topologySpreadConstraints": spread,
                              "terminationGracePeriodSeconds": 0 },
                },
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": meta("client"),
            "spec": { "containers": [client], "terminationGracePeriodSeconds": 0 },
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": meta("web"),
            "spec": {
                "type": "LoadBalancer", "ipFamilyPolicy": "RequireDualStack", "selector": labels,
                "ports": [{ "port": 80, "targetPort": 8080 }],
            },
        }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("checker") }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta("checker"),
            "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] }],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta("checker"),
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "checker" },
            "subjects": [{ "kind": "ServiceAccount", "name": "checker", "namespace": NAMESPACE }],
        }),
    ];
    // A pod is refused while its namespace has no account `default`, which a controller makes.
    eventually_within(DEADLINE, "the objects are made", || addons::apply(folder, "check", &objects))
}

fn nodes(folder: &Folder) -> Result<()> {
    let ready = r#"jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}"#;
    let states = kubectl(folder, &["get", "nodes", "--output", ready])?;
    ensure!(states == "True True", "Ready is {states}");
    Ok(())
}

/// Holds for a cluster without them too, which was asked for.
fn definitions(folder: &Folder) -> Result<()> {
    let names = kubectl(folder, &["get", "crd", "--output=name"])?;
    if names.contains("gateway.networking.k8s.io") {
        kubectl(folder, &["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"])?;
    }
    Ok(())
}

fn pods(folder: &Folder) -> Result<()> {
    inside(folder, &["rollout", "status", "deployment/web", "--timeout=60s"])?;
    inside(folder, &["wait", "--for=condition=Ready", "pod/client", "--timeout=60s"])?;
    let nodes = inside(
        folder,
        &["get", "pods", "--selector=app=web", "--output=jsonpath={.items[*].spec.nodeName}"],
    )?;
    ensure!(nodes == "n1 n2" || nodes == "n2 n1", "the pods are on {nodes}");
    Ok(())
}

fn exec_and_logs(folder: &Folder) -> Result<()> {
    let name = in_client(folder, &["/busybox", "hostname"])?;
    ensure!(name.trim() == "client", "the pod says that it is {name}");
    eventually_within(DEADLINE, "the log is there", || {
        let log = inside(folder, &["logs", "client"])?;
        ensure!(log == "started\n", "the log is {log:?}");
        Ok(())
    })
}

/// A program in the client's pod.
fn in_client(folder: &Folder, command: &[&str]) -> Result<String> {
    inside(folder, &[&["exec", "client", "--"], command].concat())
}

fn token(folder: &Folder) -> Result<String> {
    inside(folder, &["create", "token", "checker"]).map(|token| token.trim().to_owned())
}

fn audit_log(folder: &Folder) -> Result<()> {
    let bearer = format!("Authorization: Bearer {}", token(folder)?);
    let ca = folder.path("pki/ca.crt");
    let ca = ca.to_str().context("the path is not UTF-8")?;
    let own = format!("https://172.31.0.10:6443/api/v1/namespaces/{NAMESPACE}/configmaps");
    let other = "https://[fd31::10]:6443/api/v1/nodes".to_owned();
    for (url, resource, scope, code) in
        [(own, "configmaps", NAMESPACE, 200_u64), (other, "nodes", "cluster", 403)]
    {
        let count = || -> Result<u64> {
            let requests = audit::of(folder, ACCOUNT)?;
            let is_it = |line: &&Value| {
                line["verb"] == "list"
                    && line["resource"] == resource
                    && line["scope"] == scope
                    && line["code"] == code
                    && line["forbidden"] == (code == 403)
            };
            Ok(requests.iter().find(is_it).and_then(|line| line["count"].as_u64()).unwrap_or(0))
        };
        let before = count()?;
        let write = ["--output", "/dev/null", "--write-out", "%{http_code}"];
        let got = output(curl(&write).args(["--cacert", ca, "--header", &bearer, &url]))?;
        ensure!(got == code.to_string(), "{url} is answered by {got}");
        let more = count()? - before;
        ensure!(more == 1, "a request for {resource} of {scope} is {more} in the audit log");
    }
    Ok(())
}
