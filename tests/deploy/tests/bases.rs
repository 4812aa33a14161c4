//! The bases as files: what each holds, what it may do, and that no namespaced one reaches further. No cluster is asked,
//! but its kubectl builds them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use deploy_tests::{bases, kustomize, yaml};
use serde_json::{Value, json};

/// For an admin of a namespace.
const NAMESPACED: [&str; 7] = [
    "base",
    "deployment",
    "deployment-ebpf",
    "daemonset",
    "daemonset-host-network",
    "sidecar",
    "watched-namespace",
];

/// For the cluster's administrator.
const OF_THE_CLUSTER: [&str; 4] =
    ["all-namespaces", "acknowledger", "cluster-admin", "cluster-admin/endpointslices"];

/// Kinds that have no namespace among those that occur here; whatever is not known to have one counts as such.
const NAMESPACED_KINDS: [&str; 10] = [
    "ConfigMap",
    "DaemonSet",
    "Deployment",
    "Gateway",
    "HTTPRoute",
    "PodDisruptionBudget",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
];

/// kubectl takes a while to start, and several tests look at the same base.
fn build(base: &'static str) -> Vec<Value> {
    static BUILT: Mutex<BTreeMap<&str, Vec<Value>>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let objects = built.entry(base).or_insert_with(|| {
        let text = kustomize(&bases().join(base)).unwrap_or_else(|error| panic!("{base}: {error:#}"));
        yaml::documents(&text).unwrap_or_else(|error| panic!("{base}: {error:#}"))
    });
    objects.clone()
}

fn named<'o>(objects: &'o [Value], kind: &str, name: &str) -> &'o Value {
    objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        .unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// The one workload of a base, and the agent's container in it.
fn agent(base: &'static str) -> (Value, Value) {
    let objects = build(base);
    let workload = objects
        .iter()
        .find(|object| object["kind"] == "Deployment" || object["kind"] == "DaemonSet")
        .unwrap_or_else(|| panic!("{base} has no workload"));
    let pod = workload["spec"]["template"]["spec"].clone();
    let container = ["initContainers", "containers"]
        .iter()
        .filter_map(|list| pod[*list].as_array())
        .flatten()
        .find(|container| container["name"] == "agent" || container["name"] == "acknowledger")
        .unwrap_or_else(|| panic!("{base} has no container of the agent"))
        .clone();
    (pod, container)
}

/// `GROUP/RESOURCE VERB`, for each.
fn rights(role: &Value) -> BTreeSet<String> {
    let list = |rule: &Value, field: &str| -> Vec<String> {
        let items = rule[field].as_array().unwrap_or_else(|| panic!("a rule without {field}: {rule}"));
        items.iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
    };
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().expect("a role has rules") {
        assert_eq!(rule.as_object().map(serde_json::Map::len), Some(3), "a rule has three fields: {rule}");
        for group in list(rule, "apiGroups") {
            for resource in list(rule, "resources") {
                for verb in list(rule, "verbs") {
                    rights.insert(format!("{group}/{resource} {verb}"));
                }
            }
        }
    }
    rights
}

fn table(rows: &[(&str, &str, &str)]) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    for (group, resources, verbs) in rows {
        for resource in resources.split(' ') {
            rights.extend(verbs.split(' ').map(|verb| format!("{group}/{resource} {verb}")));
        }
    }
    rights
}

const API: &str = "gateway.networking.k8s.io";
const SPECS: &str = "gateways listenersets httproutes grpcroutes tlsroutes tcproutes udproutes referencegrants \
                     backendtlspolicies";
const STATUSES: &str = "gateways/status listenersets/status httproutes/status grpcroutes/status tlsroutes/status \
                        tcproutes/status udproutes/status backendtlspolicies/status";

/// What README.md says of a watched namespace.
const WATCHED: &[(&str, &str, &str)] = &[
    (API, SPECS, "get list watch"),
    (API, STATUSES, "update patch"),
    ("", "services secrets configmaps", "get list watch"),
    ("discovery.k8s.io", "endpointslices", "get list watch"),
    ("", "namespaces", "get"),
    ("", "services", "create update patch delete"),
    ("", "events", "create patch"),
    ("events.k8s.io", "events", "create patch"),
    ("coordination.k8s.io", "leases", "get create update"),
];

const SLICES: &[(&str, &str, &str)] = &[("discovery.k8s.io", "endpointslices", "create update patch delete")];

#[test]
fn every_base_builds_and_nothing_else_is_there() {
    for base in NAMESPACED.iter().chain(&OF_THE_CLUSTER) {
        assert!(!build(base).is_empty(), "{base}");
    }
    let known: BTreeSet<_> = NAMESPACED.into_iter().chain(OF_THE_CLUSTER).collect();
    for entry in std::fs::read_dir(bases()).unwrap() {
        let name = entry.unwrap().file_name();
        let name = name.to_str().unwrap();
        let is_other =
            ["README.md", "addresses.md", "observing.md", "parameters.md", "quickstart"].contains(&name);
        assert!(is_other || known.contains(name), "{name} is in no test");
    }
}

#[test]
fn namespaced_bases_hold_nothing_of_cluster_scope() {
    for base in NAMESPACED {
        for object in build(base) {
            let kind = object["kind"].as_str().unwrap_or_default();
            assert!(NAMESPACED_KINDS.contains(&kind), "{base} has a {kind}");
            assert_eq!(object["metadata"]["namespace"], Value::Null, "{base} chooses a namespace: {object}");
        }
    }
}

#[test]
fn roles_are_exactly_the_documented_table() {
    let home = [
        ("", "configmaps", "get create update patch"),
        ("coordination.k8s.io", "leases", "get create update"),
    ];
    for base in ["base", "deployment", "daemonset", "sidecar"] {
        let objects = build(base);
        assert_eq!(rights(named(&objects, "Role", "gateway-agent")), table(WATCHED), "{base}");
        assert_eq!(rights(named(&objects, "Role", "gateway-agent-home")), table(&home), "{base}");
        assert_eq!(objects.iter().filter(|object| object["kind"] == "Role").count(), 2, "{base}");
    }
    let watched = build("watched-namespace");
    let with_slices = table(&[WATCHED, SLICES].concat());
    assert_eq!(rights(named(&watched, "Role", "gateway-agent")), with_slices);
}

#[test]
fn cluster_roles_are_exactly_the_documented_table() {
    let all = build("all-namespaces");
    let mut expected = table(&[WATCHED, SLICES, &[("", "namespaces", "list watch")]].concat());
    expected.retain(|right| !right.starts_with("coordination"));
    assert_eq!(rights(named(&all, "ClusterRole", "gateway-agent")), expected);

    let acknowledger = build("acknowledger");
    assert_eq!(
        rights(named(&acknowledger, "ClusterRole", "gateway-agent-acknowledger")),
        table(&[(API, "gatewayclasses", "get list watch"), (API, "gatewayclasses/status", "update patch")])
    );

    let admin = build("cluster-admin");
    assert_eq!(admin.len(), 1);
    assert_eq!(
        rights(&admin[0]),
        table(&[
            (API, SPECS, "get list watch create update patch delete deletecollection"),
            (API, STATUSES, "get update patch"),
        ])
    );
    let slices = build("cluster-admin/endpointslices");
    assert_eq!(rights(&slices[0]), table(SLICES));
}

#[test]
fn bindings_name_an_account_of_their_base() {
    for base in NAMESPACED.into_iter().chain(["all-namespaces", "acknowledger"]) {
        let objects = build(base);
        for binding in objects
            .iter()
            .filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("RoleBinding")))
        {
            assert_eq!(binding["subjects"].as_array().map(Vec::len), Some(1), "{base}: {binding}");
            assert_eq!(binding["subjects"][0]["kind"], "ServiceAccount", "{base}");
            if base != "watched-namespace" {
                named(
                    &objects,
                    "ServiceAccount",
                    binding["subjects"][0]["name"].as_str().unwrap_or_default(),
                );
            }
        }
    }
}

#[test]
fn capabilities_are_exactly_those_of_the_kernel_paths() {
    for base in ["deployment", "sidecar", "all-namespaces", "acknowledger"] {
        let (_, container) = agent(base);
        assert_eq!(container["securityContext"]["capabilities"], json!({ "drop": ["ALL"] }), "{base}");
    }
    for base in ["deployment-ebpf", "daemonset", "daemonset-host-network"] {
        let (_, container) = agent(base);
        assert_eq!(
            container["securityContext"]["capabilities"],
            json!({ "drop": ["ALL"], "add": ["BPF", "NET_ADMIN", "PERFMON"] }),
            "{base}"
        );
    }
}

#[test]
fn containers_are_confined_everywhere() {
    for base in NAMESPACED.into_iter().skip(1).chain(["all-namespaces", "acknowledger"]) {
        if base == "watched-namespace" {
            continue;
        }
        let (pod, container) = agent(base);
        let own = &container["securityContext"];
        let either =
            |field: &str| if own[field].is_null() { &pod["securityContext"][field] } else { &own[field] };
        assert_eq!(own["allowPrivilegeEscalation"], false, "{base}");
        assert_eq!(own["readOnlyRootFilesystem"], true, "{base}");
        assert_eq!(*either("runAsNonRoot"), true, "{base}");
        assert_eq!(*either("runAsUser"), 65532, "{base}");
        assert_eq!(*either("seccompProfile"), json!({ "type": "RuntimeDefault" }), "{base}");
        assert!(!container["resources"]["limits"]["memory"].is_null(), "{base}");
        let volumes = pod["volumes"].as_array().map(Vec::as_slice).unwrap_or_default();
        for volume in volumes {
            assert!(volume.get("hostPath").is_none(), "{base} mounts from the node: {volume}");
        }
    }
}

#[test]
fn serving_bases_have_probes_memory_for_state_and_time_to_end() {
    for base in
        ["deployment", "deployment-ebpf", "daemonset", "daemonset-host-network", "sidecar", "all-namespaces"]
    {
        let (pod, container) = agent(base);
        for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
            assert_eq!(container[probe]["httpGet"], json!({ "path": path, "port": "admin" }), "{base}");
        }
        let state = pod["volumes"]
            .as_array()
            .and_then(|volumes| volumes.iter().find(|volume| volume["emptyDir"]["medium"] == "Memory"));
        let state = state.unwrap_or_else(|| panic!("{base} keeps its state in no memory"));
        assert!(!state["emptyDir"]["sizeLimit"].is_null(), "{base}");
        let args = container["args"].as_array().expect("the agent has arguments");
        assert!(args.contains(&json!("--state-dir=/state")), "{base}: {args:?}");
        // The agent's own grace period is 25 s.
        assert!(pod["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds > 30), "{base}");
    }
}

#[test]
fn only_the_host_network_overlay_is_in_the_nodes_network() -> Result<()> {
    for base in ["deployment", "deployment-ebpf", "daemonset", "sidecar", "all-namespaces", "acknowledger"] {
        assert_eq!(agent(base).0["hostNetwork"], Value::Null, "{base}");
    }
    let (pod, _) = agent("daemonset-host-network");
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["securityContext"]["sysctls"], Value::Null, "the API server refuses sysctls of the node");
    Ok(())
}
