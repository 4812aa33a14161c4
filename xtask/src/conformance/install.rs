//! The agent in the cluster, from `deploy/`, in one of two ways; and its removal.
//!
//! The kustomizations written here are what a reader of `deploy/README.md` writes: the image, the class, the namespaces.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::cluster::{apply_folder, apply_text, kubectl};
use super::{CLASS, CONTROLLER, folder, namespaced};
use crate::command::root;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// One agent for all namespaces, and the acknowledger for its class.
    Default,
    /// An agent with Roles in its namespaces and nothing else.
    RolesOnly,
}

impl Mode {
    /// In the suite's report, and in the names of files.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::RolesOnly => "namespaced",
        }
    }

    /// Where the agent's pods are.
    pub(super) const fn namespace(self) -> &'static str {
        match self {
            // As the overlays say.
            Self::Default => SYSTEM,
            Self::RolesOnly => namespaced::HOME,
        }
    }
}

const SYSTEM: &str = "gateway-agent-system";

/// The namespaces of the suite's own manifests.
pub(super) const SUITE_NAMESPACES: [&str; 3] =
    ["gateway-conformance-infra", "gateway-conformance-app-backend", "gateway-conformance-web-backend"];

/// What the cluster's load balancer can be asked for; the suite asks for one address.
const ASKABLE: &str = "--address-pool=172.31.1.0/24,fd31:1::/64";

/// How long a rollout may take: two pods of one image that is on the nodes.
const ROLLOUT: &str = "--timeout=120s";

pub(super) fn apply(mode: Mode, features: &[String]) -> Result<()> {
    class()?;
    let class_name = format!("--gateway-class-name={CLASS}");
    match mode {
        Mode::Default => {
            apply_folder(&overlay("acknowledger", None, &[])?)?;
            apply_folder(&overlay("all-namespaces", None, &[&class_name, ASKABLE])?)?;
            rolled_out(SYSTEM, "gateway-agent-acknowledger")?;
        }
        Mode::RolesOnly => {
            namespaced::namespaces()?;
            let watched = format!("--watch-namespaces={}", namespaced::watched().join(","));
            apply_folder(&overlay("deployment", Some(namespaced::HOME), &[&class_name, &watched, ASKABLE])?)?;
            namespaced::acknowledge(features)?;
        }
    }
    rolled_out(mode.namespace(), "gateway-agent")?;
    println!("conformance: the agent is installed ({})", mode.name());
    Ok(())
}

/// Removes what either mode and the suite leave.
pub(super) fn remove() -> Result<()> {
    let mut namespaces = vec![SYSTEM, namespaced::HOME];
    namespaces.extend(SUITE_NAMESPACES);
    namespaces.extend(namespaced::OF_TESTS);
    // Gateways first, while there is an agent: nothing of theirs is to outlive them.
    for namespace in SUITE_NAMESPACES {
        kubectl(["delete", "gateways", "--all", "--ignore-not-found", "--timeout=60s", "-n", namespace])?;
    }
    let mut args = vec!["delete", "namespaces", "--ignore-not-found", "--timeout=180s"];
    args.extend(namespaces);
    kubectl(args)?;
    let named = ["gateway-agent", "gateway-agent-acknowledger"];
    for kind in ["clusterrolebindings", "clusterroles"] {
        kubectl(["delete", kind, "--ignore-not-found"].iter().chain(&named))?;
    }
    kubectl(["delete", "gatewayclasses", "--ignore-not-found", CLASS]).map(drop)
}

/// What every replica wrote, into one file.
pub(super) fn logs(path: &Path) -> Result<()> {
    let mut text = String::new();
    for mode in [Mode::Default, Mode::RolesOnly] {
        text += &kubectl([
            "logs",
            "--namespace",
            mode.namespace(),
            "--selector=app.kubernetes.io/name=gateway-agent",
            "--all-containers",
            "--prefix",
            "--tail=-1",
            "--ignore-errors",
        ])?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The class, which only whoever runs the cluster can make; the agent itself needs none.
fn class() -> Result<()> {
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": { "name": CLASS },
        "spec": { "controllerName": CONTROLLER },
    });
    apply_text(&class.to_string(), &[])
}

fn rolled_out(namespace: &str, deployment: &str) -> Result<()> {
    let name = format!("deployment/{deployment}");
    kubectl(["rollout", "status", &name, "--namespace", namespace, ROLLOUT])
        .map(drop)
        .with_context(|| format!("{deployment} in {namespace} does not become ready"))
}

/// A kustomization over `deploy/BASE`: our image, and `args` for the agent.
fn overlay(base: &str, namespace: Option<&str>, args: &[&str]) -> Result<PathBuf> {
    let operations: Vec<_> = args
        .iter()
        .map(|arg| json!({ "op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": arg }))
        .collect();
    let mut kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "images": [{
            "name": "gateway-agent",
            "newName": "docker.io/local/gateway-agent",
            "newTag": env!("CARGO_PKG_VERSION"),
        }],
    });
    if !operations.is_empty() {
        kustomization["patches"] =
            json!([{ "target": { "kind": "Deployment" }, "patch": json!(operations).to_string() }]);
    }
    if let Some(namespace) = namespace {
        kustomization["namespace"] = json!(namespace);
    }
    written(base, kustomization, &format!("deploy/{base}"))
}

/// Writes a kustomization of its own folder that takes one folder of the tree.
pub(super) fn written(name: &str, mut kustomization: serde_json::Value, resource: &str) -> Result<PathBuf> {
    let folder = folder().join("install").join(name);
    fs::create_dir_all(&folder)?;
    // Both without links: the way up must be the way that was come down.
    let from = fs::canonicalize(&folder)?;
    kustomization["resources"] = json!([relative(&from, &fs::canonicalize(root().join(resource))?)]);
    fs::write(folder.join("kustomization.yaml"), format!("{kustomization:#}\n"))?;
    Ok(from)
}

/// kustomize takes no absolute path.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(to.components().skip(shared)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_goes_up_to_what_both_share() {
        let relative = |from, to| relative(Path::new(from), Path::new(to));
        assert_eq!(relative("/a/target/x", "/a/deploy"), Path::new("../../deploy"));
        assert_eq!(relative("/t", "/a/deploy"), Path::new("../a/deploy"));
    }
}
