//! A team: a namespace, and a user who is bound there to Kubernetes' role `admin` and to nothing else.
//!
//! Everything a team does goes through that user, so a right that is missing shows as it would for the team.

use std::ffi::OsStr;
use std::fs;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::audit;
use crate::cluster::{Cluster, bases};

/// What the namespace enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodSecurity {
    Restricted,
    Privileged,
}

pub struct Team<'a> {
    cluster: &'a Cluster,
    namespace: String,
    user: String,
    folder: TempDir,
}

/// Marks namespaces of these tests; what a crashed run left is found by it.
const LABEL: &str = "gateway-agent.dev/deploy-test";

impl PodSecurity {
    const fn name(self) -> &'static str {
        match self {
            Self::Restricted => "restricted",
            Self::Privileged => "privileged",
        }
    }
}

impl<'a> Team<'a> {
    /// The first team of a test; removes those of others before.
    pub fn create(cluster: &'a Cluster, name: &str, security: PodSecurity) -> Result<Self> {
        cluster.kubectl([
            "delete",
            "namespaces",
            "--ignore-not-found",
            "--timeout=180s",
            &format!("--selector={LABEL}"),
        ])?;
        let user = format!("{name}-admin");
        Self::with_user(cluster, name, &user, security)
    }

    /// Another namespace of the same user.
    pub fn another(&self, name: &str) -> Result<Self> {
        Self::with_user(self.cluster, name, &self.user, PodSecurity::Restricted)
    }

    fn with_user(cluster: &'a Cluster, name: &str, user: &str, security: PodSecurity) -> Result<Self> {
        // The audit log outlives a run, and tells accounts apart by the names of their namespaces.
        let namespace = format!("{name}-{}", std::process::id());
        let objects = json!({ "apiVersion": "v1", "kind": "List", "items": [
            { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace, "labels": {
                LABEL: "true",
                "pod-security.kubernetes.io/enforce": security.name(),
            }}},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": { "name": "admin", "namespace": namespace },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin" },
                "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
            },
        ]});
        cluster.kubectl_with(["apply", "--server-side", "-f", "-"], &objects.to_string())?;
        let folder = tempfile::tempdir()?;
        let team = Self { cluster, namespace, user: user.to_owned(), folder };
        // A controller aggregates the prerequisite into `admin`.
        cluster.eventually("the user may create Gateways", || {
            team.kubectl(["auth", "can-i", "create", "gateways.gateway.networking.k8s.io"]).map(drop)
        })?;
        Ok(team)
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// kubectl as the team's user, in its namespace.
    pub fn kubectl<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        self.kubectl_with(args, "")
    }

    fn kubectl_with<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &str,
    ) -> Result<String> {
        let own = [format!("--as={}", self.user), format!("--namespace={}", self.namespace)].map(Into::into);
        let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
        self.cluster.kubectl_with(own.into_iter().chain(args), input)
    }

    pub fn apply(&self, manifests: &str) -> Result<()> {
        self.kubectl_with(["apply", "--server-side", "-f", "-"], manifests).map(drop)
    }

    /// Installs a base as its README says: a kustomization that names the namespace, the image and more flags.
    pub fn install(&self, base: &str, args: &[&str]) -> Result<()> {
        let operations: Vec<Value> = args
            .iter()
            .map(
                |arg| json!({ "op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": arg }),
            )
            .collect();
        let patches = if operations.is_empty() {
            json!([])
        } else {
            json!([{ "target": { "kind": "Deployment|DaemonSet" }, "patch": json!(operations).to_string() }])
        };
        self.apply_base(base, patches)
    }

    /// The rights in this team's namespace for the agent of another.
    pub fn grant_to(&self, other: &Self) -> Result<()> {
        let patch = json!([{ "op": "replace", "path": "/subjects/0/namespace", "value": other.namespace }]);
        self.apply_base(
            "watched-namespace",
            json!([{ "target": { "kind": "RoleBinding" }, "patch": patch.to_string() }]),
        )
    }

    fn apply_base(&self, base: &str, patches: Value) -> Result<()> {
        let folder = self.folder.path().join(base.replace('/', "-"));
        fs::create_dir_all(&folder)?;
        let from = fs::canonicalize(&folder)?;
        let kustomization = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": self.namespace,
            "resources": [relative(&from, &fs::canonicalize(bases().join(base))?)],
            "images": images(),
            "patches": patches,
        });
        fs::write(folder.join("kustomization.yaml"), format!("{kustomization:#}\n"))?;
        self.kubectl([OsStr::new("apply"), OsStr::new("--server-side"), OsStr::new("-k"), from.as_os_str()])
            .map(drop)
    }

    /// Waits until all of a workload's pods are new and ready. `what` is `deployment/NAME` or `daemonset/NAME`.
    pub fn rolled_out(&self, what: &str) -> Result<()> {
        let result = self.kubectl(["rollout", "status", what, "--timeout=120s"]).map(drop);
        result.with_context(|| self.state())
    }

    pub fn object(&self, kind: &str, name: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(["get", kind, name, "--output=json"])?)?)
    }

    /// The pods of a component of the agent.
    pub fn pods(&self, selector: &str) -> Result<Vec<Value>> {
        let text = self.kubectl(["get", "pods", "--output=json", "--selector", selector])?;
        let mut list: Value = serde_json::from_str(&text)?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("no list of pods: {other}"),
        }
    }

    /// The first address of a Gateway, once its status says that it is programmed.
    pub fn address(&self, gateway: &str) -> Result<IpAddr> {
        self.addresses(gateway)?.first().copied().context("a Gateway has an address")
    }

    pub fn addresses(&self, gateway: &str) -> Result<Vec<IpAddr>> {
        let probe = || {
            let gateway = self.object("gateway", gateway)?;
            let status = &gateway["status"];
            let programmed = condition(status, "Programmed").context("no condition Programmed")?;
            ensure!(programmed["status"] == "True", "Programmed: {programmed}");
            let addresses = status["addresses"].as_array().context("no addresses")?;
            let addresses: Vec<IpAddr> = addresses
                .iter()
                .filter_map(|address| address["value"].as_str())
                .map(|value| value.parse().with_context(|| format!("{value} is no address")))
                .collect::<Result<_>>()?;
            ensure!(!addresses.is_empty(), "no addresses");
            Ok(addresses)
        };
        self.cluster.eventually("the Gateway is programmed", probe).with_context(|| self.state())
    }

    /// Judges everything that the agent of this team has asked of the API server so far.
    pub fn judge_requests(&self, watched: &[&str]) -> Result<audit::Summary> {
        let account = format!("system:serviceaccount:{}:gateway-agent", self.namespace);
        audit::judge(&self.cluster.audit_log()?, &account, watched)
    }

    /// The agent's own pages, through the API server, as the team's user may.
    pub fn admin_page(&self, pod: &str, path: &str) -> Result<String> {
        let pod = format!("/api/v1/namespaces/{}/pods/{pod}:9901/proxy/{path}", self.namespace);
        self.kubectl(["get", "--raw", &pod])
    }

    /// What someone would look at first.
    fn state(&self) -> String {
        let looks: [&[&str]; 4] = [
            &["get", "all,gateways", "--output=wide"],
            &["describe", "gateways"],
            &["get", "events", "--sort-by=.lastTimestamp"],
            &[
                "logs",
                "--selector=app.kubernetes.io/name=gateway-agent",
                "--all-containers",
                "--prefix",
                "--tail=60",
            ],
        ];
        let mut text = String::new();
        for look in looks {
            text += &format!("\n$ kubectl {}\n", look.join(" "));
            text += &self.kubectl(look).unwrap_or_else(|error| format!("{error:#}"));
        }
        text
    }
}

impl Drop for Team<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("state of {}:{}", self.namespace, self.state());
        }
        // The next test waits for what is not gone by then.
        if let Err(error) = self.cluster.kubectl([
            "delete",
            "namespace",
            &self.namespace,
            "--ignore-not-found",
            "--wait=false",
        ]) {
            eprintln!("{} stays: {error:#}", self.namespace);
        }
    }
}

/// The condition of a type in a status.
pub fn condition<'v>(status: &'v Value, kind: &str) -> Option<&'v Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Ours for the placeholders of the bases.
fn images() -> Value {
    let (echo, tag) = crate::manifests::ECHO.rsplit_once(':').expect("the image has a tag");
    json!([
        {
            "name": "gateway-agent",
            "newName": "docker.io/local/gateway-agent",
            "newTag": env!("CARGO_PKG_VERSION"),
        },
        { "name": "app", "newName": echo, "newTag": tag },
    ])
}

/// kustomize takes no absolute path.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(to.components().skip(shared)).collect()
}
