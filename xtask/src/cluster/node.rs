//! What runs on a node: containerd with the CNI plugins, kubelet, kube-proxy.
//!
//! Debian's containerd and runc, at their usual paths: the node's file system is its own where they write.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::images::PAUSE;
use super::machine::Machine;
use super::network::{DNS, PODS};
use super::{Folder, patiently};
use crate::command::output;

pub(super) fn start_runtime(node: &Machine, folder: &Folder) -> Result<()> {
    let name = node.place.name;
    let [v4, v6] = node.place.pod_ranges().context("a node has ranges for its pods")?;
    let network = json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                // A cable for each pod and a route to it: no bridge, and no address is translated.
                "type": "ptp",
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{ "subnet": v4 }], [{ "subnet": v6 }]],
                    "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    });
    let network = folder.write(&format!("{name}/cni/pods.conflist"), &format!("{network:#}\n"))?;
    let config = format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  # Without CAP_SYS_RESOURCE a score cannot be lowered, and every sandbox would fail.
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{network}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"#,
        image = PAUSE,
        network = network.parent().context("a file lies in a folder")?.display(),
    );
    let config = folder.write(&format!("{name}/containerd.toml"), &config)?;
    node.start("containerd", folder, node.command("containerd").arg("--config").arg(config))
}

fn ctr(node: &Machine, args: &[&str]) -> Command {
    let mut command = node.command("ctr");
    command.args(["--connect-timeout", "1s", "--timeout", "120s", "--namespace", "k8s.io"]).args(args);
    command
}

pub(super) fn wait_for_runtime(node: &Machine) -> Result<()> {
    patiently("containerd answers", || output(&mut ctr(node, &["version"])).map(drop))
}

/// Brings images into the node's containerd.
pub(super) fn load(node: &Machine, archives: &[PathBuf]) -> Result<()> {
    wait_for_runtime(node)?;
    for archive in archives {
        output(ctr(node, &["images", "import"]).arg(archive))?;
    }
    Ok(())
}

pub(super) fn start_kubelet(node: &Machine, folder: &Folder, binaries: &Path) -> Result<()> {
    let place = node.place;
    let name = place.name;
    // What of the host's file would reach nothing from here.
    let resolver = folder.write(&format!("{name}/resolv.conf"), "nameserver 172.31.0.1\n")?;
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": folder.path("pki/ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "clusterDomain": "cluster.local",
        "clusterDNS": DNS,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        // The disk is the host's: how full it is, is not the node's concern.
        "evictionHard": { "memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%" },
        "imageGCHighThresholdPercent": 100,
        "resolvConf": resolver,
    });
    let config = folder.write(&format!("{name}/kubelet.json"), &format!("{config:#}\n"))?;
    let mut kubelet = node.command(binaries.join("kubernetes"));
    kubelet
        .args(["kubelet", &format!("--hostname-override={name}")])
        .arg(format!("--node-ip={},{}", place.v4(), place.v6()))
        .arg(format!("--kubeconfig={}", folder.kubeconfig(name).display()))
        .arg(format!("--config={}", config.display()));
    node.start("kubelet", folder, &mut kubelet)?;
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": { "kubeconfig": folder.kubeconfig("proxy") },
        "mode": "nftables",
        "clusterCIDR": PODS,
        "hostnameOverride": name,
        // The limit is the host's and cannot be written from a network namespace.
        "conntrack": { "maxPerCore": 0 },
    });
    let config = folder.write(&format!("{name}/proxy.json"), &format!("{config:#}\n"))?;
    let mut proxy = node.command(binaries.join("kubernetes"));
    proxy.arg("kube-proxy").arg(format!("--config={}", config.display()));
    node.start("kube-proxy", folder, &mut proxy)
}
