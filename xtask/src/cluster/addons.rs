//! What a cluster needs beside its own programs: rights for them, the nodes' objects, DNS, LoadBalancer addresses and
//! the Gateway API's resource definitions. Also the waits for the whole.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::network::{DNS, NODES, lan};
use super::{Channel, DEADLINE, Folder, build, cgroup, images, machine, patiently};
use crate::command::output;

pub(super) fn apply(folder: &Folder, name: &str, objects: &[Value]) -> Result<()> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let file = folder.write(&format!("{name}.json"), &format!("{list:#}\n"))?;
    let file = file.to_str().context("the path is not UTF-8")?;
    output(&mut folder.kubectl(&["apply", "--server-side", "-f", file])).map(drop)
}

fn binding(name: &str, role: &str, user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    })
}

/// Rights that kubeadm's later phases would give, and the nodes with their pods' ranges, which the kubelets adopt.
pub(super) fn rights_and_nodes(folder: &Folder) -> Result<()> {
    let mut objects = vec![
        binding("system:kubelet-api", "system:kubelet-api-admin", "kube-apiserver-kubelet-client"),
        binding("system:proxy", "system:node-proxier", "system:kube-proxy"),
        binding("system:loadbalancer", "system:loadbalancer", "loadbalancer"),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": "system:loadbalancer" },
            "rules": [
                { "apiGroups": [""], "resources": ["services", "nodes"], "verbs": ["list", "watch"] },
                { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"] },
                { "apiGroups": [""], "resources": ["services/status"], "verbs": ["update"] },
            ],
        }),
    ];
    for place in &NODES {
        let ranges = place.pod_ranges().context("a node has ranges for its pods")?;
        objects.push(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": place.name },
            "spec": { "podCIDR": ranges[0], "podCIDRs": ranges },
        }));
    }
    // The first seconds of an API server refuse some: the built-in roles are still being written.
    patiently("rights and nodes are written", || apply(folder, "rights", &objects))
}

/// Our own controller, on the router.
pub(super) fn load_balancer(folder: &Folder, binaries: &Path) -> Result<()> {
    let mut command = machine::joined(&cgroup::create("lan")?);
    command
        .args(["nsenter", &format!("--net=/run/netns/{}", lan())])
        .arg(binaries.join("kubernetes"))
        .args(["loadbalancer", "--kubeconfig"])
        .arg(folder.kubeconfig("loadbalancer"));
    machine::detach(&mut command, &folder.log("lan-loadbalancer")).map(drop)
}

/// The resource definitions of the release that the agent's types are made from.
pub(super) fn gateway_api(folder: &Folder, channel: Channel) -> Result<()> {
    let channel = match channel {
        Channel::Standard => "standard",
        Channel::Experimental => "experimental",
        Channel::None => return Ok(()),
    };
    let release = build::gateway_api()?;
    let mut files = Vec::new();
    for entry in fs::read_dir(release.join("config/crd").join(channel))? {
        let path = entry?.path();
        // Beside them lies what kustomize needs, which is no object.
        if path.file_name().is_some_and(|name| name != "kustomization.yaml") {
            files.push(path);
        }
    }
    files.sort();
    let mut apply = folder.kubectl(&["apply", "--server-side"]);
    for file in files {
        apply.arg("-f").arg(file);
    }
    output(&mut apply).map(drop)
}

/// CoreDNS, as two pods of a Deployment, at the addresses that the kubelets give to pods.
pub(super) fn dns(folder: &Folder) -> Result<()> {
    let namespace = "kube-system";
    let meta = json!({ "name": "coredns", "namespace": namespace });
    let labels = json!({ "k8s-app": "kube-dns" });
    let corefile = ".:53 {\n  errors\n  health\n  ready\n  kubernetes cluster.local in-addr.arpa ip6.arpa {\n    \
                    pods insecure\n    fallthrough in-addr.arpa ip6.arpa\n  }\n  cache 5\n  loadbalance\n}\n";
    let ports = json!([
        { "name": "dns", "port": 53, "protocol": "UDP" },
        { "name": "dns-tcp", "port": 53, "protocol": "TCP" },
    ]);
    let pod = json!({
        "serviceAccountName": "coredns",
        // It is what others ask: its own names come from nowhere.
        "dnsPolicy": "Default",
        "containers": [{
            "name": "coredns",
            "image": images::COREDNS,
            "imagePullPolicy": "Never",
            "args": ["-conf", "/etc/coredns/Corefile"],
            "readinessProbe": { "httpGet": { "path": "/ready", "port": 8181 }, "periodSeconds": 1 },
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] },
                "readOnlyRootFilesystem": true,
            },
            "volumeMounts": [{ "name": "config", "mountPath": "/etc/coredns" }],
        }],
        "volumes": [{ "name": "config", "configMap": { "name": "coredns" } }],
    });
    let objects = [
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": "system:coredns" },
            "rules": [
                { "apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"] },
                { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"] },
            ],
        }),
        binding("system:coredns", "system:coredns", &format!("system:serviceaccount:{namespace}:coredns")),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": { "Corefile": corefile } }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": "kube-dns", "namespace": namespace },
            "spec": {
                "clusterIP": DNS[0],
                "clusterIPs": DNS,
                "ipFamilyPolicy": "RequireDualStack",
                "selector": labels,
                "ports": ports,
            },
        }),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "replicas": NODES.len(),
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod },
            },
        }),
    ];
    apply(folder, "dns", &objects)
}

pub(super) fn wait_for_nodes(folder: &Folder) -> Result<()> {
    wait(folder, &["--for=condition=Ready", "nodes", "--all"])
}

/// Until a pod can be made in `default` and can resolve a name.
pub(super) fn wait_for_workloads(folder: &Folder) -> Result<()> {
    wait(folder, &["--namespace=kube-system", "--for=condition=Available", "deployment/coredns"])?;
    wait(folder, &["--for=create", "serviceaccount/default"])
}

fn wait(folder: &Folder, what: &[&str]) -> Result<()> {
    let timeout = format!("--timeout={}s", DEADLINE.as_secs());
    let mut args = vec!["wait", timeout.as_str()];
    args.extend(what);
    output(&mut folder.kubectl(&args)).map(drop)
}
