//! A team: a namespace, a service account for its agent, the Roles of `deploy/` and objects.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};
use serde_json::Value;
use tempfile::TempDir;

use crate::{kubectl, root};

/// Of the agent, as in `deploy/`.
const ACCOUNT: &str = "gateway-agent";

/// A namespace with an agent's account in it; deleted with what is in it when dropped.
#[derive(Debug)]
pub struct Team {
    namespace: String,
    folder: TempDir,
}

/// Which way to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Direct,
    /// Through the proxy that makes faults.
    Faults,
}

impl Team {
    /// Makes a namespace whose name begins with `label`, and the rights of a namespaced agent in it.
    pub fn new(label: &str) -> Result<Self> {
        let team = Self::without_rights(label)?;
        team.grant(&team)?;
        Ok(team)
    }

    /// As [`Self::new`], but the account may do nothing yet.
    pub fn without_rights(label: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{label}-{}-{number}", std::process::id());
        kubectl(&["create", "namespace", &namespace], "")?;
        let team = Self { namespace, folder: TempDir::new().context("a folder")? };
        team.kubectl(&["create", "serviceaccount", ACCOUNT])?;
        Ok(team)
    }

    /// Gives the agent of `other` the rights of a namespaced agent here, by the Roles that are shipped; and this one's.
    pub fn grant(&self, other: &Self) -> Result<()> {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/base");
        for role in ["role", "role-home"] {
            let path = deploy.join(format!("{role}.yaml"));
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            // kustomize fills it in.
            let subject = format!("    name: {ACCOUNT}\n    namespace: {}\n", self.namespace);
            self.apply(&text.replace(&format!("    name: {ACCOUNT}\n"), &subject))?;
        }
        if other.namespace != self.namespace {
            let account = format!("--serviceaccount={}:{ACCOUNT}", other.namespace);
            self.kubectl(&["create", "rolebinding", &other.namespace, "--role=gateway-agent", &account])?;
        }
        Ok(())
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// As the API server names the agent.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace)
    }

    /// For files of a test; gone with the team.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Creates or changes objects in the namespace.
    pub fn apply(&self, yaml: &str) -> Result<()> {
        // Without fetching the schemas of everything first.
        let apply = ["apply", "--server-side", "--force-conflicts", "--validate=false", "-f", "-"];
        let args: Vec<&str> = ["-n", &self.namespace].into_iter().chain(apply).collect();
        kubectl(&args, yaml).map(drop)
    }

    /// Puts a changed object of [`Self::get`] back.
    pub fn replace(&self, object: &Value) -> Result<()> {
        let args = ["-n", &self.namespace, "replace", "--validate=false", "-f", "-"];
        kubectl(&args, &object.to_string()).map(drop)
    }

    pub fn delete(&self, kind: &str, name: &str) -> Result<()> {
        self.kubectl(&["delete", kind, name]).map(drop)
    }

    /// Runs kubectl in the namespace, as the administrator.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let all: Vec<&str> = ["-n", &self.namespace].iter().chain(args).copied().collect();
        kubectl(&all, "")
    }

    /// An object as JSON.
    pub fn get(&self, kind: &str, name: &str) -> Result<Value> {
        let text = self.kubectl(&["get", kind, name, "-o", "json"])?;
        serde_json::from_str(&text).context("kubectl prints JSON")
    }

    /// A kubeconfig of the agent's account.
    pub fn kubeconfig(&self, way: Way) -> Result<PathBuf> {
        let port = match way {
            Way::Direct => 6443,
            Way::Faults => 6444,
        };
        let token = self.kubectl(&["create", "token", ACCOUNT, "--duration", "2h"])?;
        let token_file = self.folder().join("token");
        fs::write(&token_file, token.trim())?;
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: agent\n\
             clusters: [{{name: test, cluster: {{server: \"https://172.31.0.10:{port}\", certificate-authority: {}}}}}]\n\
             users: [{{name: agent, user: {{tokenFile: {}}}}}]\n\
             contexts: [{{name: agent, context: {{cluster: test, user: agent, namespace: {}}}}}]\n",
            root()?.join("pki/ca.crt").display(),
            token_file.display(),
            self.namespace,
        );
        let file = self.folder().join(format!("kubeconfig-{port}"));
        fs::write(&file, text)?;
        Ok(file)
    }

    /// Requests of the agent that were refused for lack of rights, by the audit log.
    pub fn denied(&self) -> Result<Vec<String>> {
        let log = fs::read_to_string(root()?.join("logs/audit.log")).context("read the audit log")?;
        let user = self.user();
        let is_denied = |line: &&str| {
            let event: Value = serde_json::from_str(line).unwrap_or_default();
            event.pointer("/user/username").and_then(Value::as_str) == Some(&user)
                && event.pointer("/responseStatus/code").and_then(Value::as_u64) == Some(403)
        };
        Ok(log.lines().filter(|line| line.contains(&user)).filter(is_denied).map(str::to_owned).collect())
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        // A test that failed has more to say than this.
        drop(kubectl(&["delete", "namespace", &self.namespace, "--wait=false"], ""));
    }
}
