//! The cluster's API: JSON over kubectl's proxy on a Unix socket, so that a call costs no start of a program.
//!
//! It acts as the cluster's administrator, who also writes the routes. TLS and credentials are kubectl's concern.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use lab::Netns;
use lab::http::read_response;
use serde_json::Value;

use crate::command::{output, program, run};

/// For one answer: the API server shares its cores with all that is measured.
const ANSWER: Duration = Duration::from_secs(60);

/// A cluster by its name, as `cargo xtask cluster --name` has it; `tests/cluster/README.md` says where its files are.
#[derive(Clone, Debug)]
pub(super) struct Name(String);

impl Name {
    pub(super) fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The network outside of the nodes, where the clients are.
    pub(super) fn outside(&self) -> Result<Netns> {
        Netns::open(&format!("{}-lan", self.0))
    }

    /// kubectl as the administrator. It ends with the thread that starts it, however that ends.
    pub(super) fn kubectl(&self, args: &[&str]) -> Command {
        let folder = Path::new("/run").join(&self.0);
        let mut command = program("setpriv");
        command
            .args(["--pdeathsig", "KILL", "nsenter"])
            .arg(format!("--net=/run/netns/{}-lan", self.0))
            .arg(folder.join("bin/kubernetes"))
            .args(["kubectl", "--kubeconfig"])
            .arg(folder.join("admin.kubeconfig"))
            .args(args)
            .env("KUBECACHEDIR", folder.join("cache"));
        command
    }

    /// `cargo xtask cluster` for it, by this very program: a build may have put another in its place.
    fn task(&self, args: &[&str]) -> Command {
        let mut command = program("/proc/self/exe");
        command.args(["cluster", "--name", &self.0]).args(args);
        command
    }

    /// Applies objects, whatever their kinds.
    pub(super) fn apply(&self, objects: &[Value]) -> Result<()> {
        let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        let mut child = self
            .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start kubectl")?;
        child.stdin.take().context("kubectl has a standard input")?.write_all(list.to_string().as_bytes())?;
        let result = child.wait_with_output()?;
        if !result.status.success() {
            bail!("kubectl apply failed: {}", String::from_utf8_lossy(&result.stderr).trim_end());
        }
        Ok(())
    }

    /// Brings an image (an OCI archive) onto the nodes.
    pub(super) fn load(&self, archive: &Path) -> Result<()> {
        run(self.task(&["load"]).arg(archive))
    }

    /// How often `user` asked to change the status of a route, by the audit log, since the cluster began.
    pub(super) fn status_writes(&self, user: &str) -> Result<u64> {
        let lines = output(&mut self.task(&["audit", "--json", "--user", user]))?;
        let mut count = 0;
        for line in lines.lines() {
            let line: Value = serde_json::from_str(line)?;
            if line["resource"].as_str().is_some_and(|resource| resource.ends_with("/httproutes/status")) {
                count += line["count"].as_u64().unwrap_or_default();
            }
        }
        Ok(count)
    }
}

pub(super) struct Cluster {
    pub(super) name: Name,
    folder: tempfile::TempDir,
    proxy: Child,
    /// Whether it is ours to take down.
    is_own: bool,
}

impl Cluster {
    /// The cluster that runs, or one started for this.
    pub(super) fn reach(name: Name) -> Result<Self> {
        let is_own =
            output(&mut name.kubectl(&["get", "--raw", "/readyz", "--request-timeout=10s"])).is_err();
        if is_own {
            run(&mut name.task(&["up"]))?;
        }
        let folder = tempfile::tempdir()?;
        let mut command = name.kubectl(&["proxy", "--unix-socket"]);
        command.arg(folder.path().join("api")).stdin(Stdio::null()).stdout(Stdio::null());
        let proxy = command.spawn().context("cannot start kubectl")?;
        let cluster = Self { name, folder, proxy, is_own };
        lab::eventually("kubectl's proxy answers", || cluster.connect()?.get("/version").map(drop))?;
        Ok(cluster)
    }

    pub(super) fn connect(&self) -> Result<Connection> {
        Connection::open(self.folder.path().join("api"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.proxy.kill().and_then(|()| self.proxy.wait()) {
            eprintln!("bench: kubectl's proxy does not stop: {error}");
        }
        if self.is_own
            && let Err(error) = run(&mut self.name.task(&["down"]))
        {
            eprintln!("bench: {error:#}");
        }
    }
}

/// One connection that is kept, for one thread.
pub(super) struct Connection {
    stream: UnixStream,
    buffered: Vec<u8>,
}

impl Connection {
    fn open(path: PathBuf) -> Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        Ok(Self { stream, buffered: Vec::new() })
    }

    pub(super) fn get(&mut self, path: &str) -> Result<Value> {
        self.call("GET", path, "application/json", None)
    }

    pub(super) fn create(&mut self, path: &str, object: &Value) -> Result<()> {
        self.call("POST", path, "application/json", Some(object)).map(drop)
    }

    pub(super) fn patch(&mut self, path: &str, patch: &Value) -> Result<()> {
        self.call("PATCH", path, "application/merge-patch+json", Some(patch)).map(drop)
    }

    pub(super) fn delete(&mut self, path: &str) -> Result<()> {
        self.call("DELETE", path, "application/json", None).map(drop)
    }

    fn call(&mut self, method: &str, path: &str, kind: &str, body: Option<&Value>) -> Result<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nContent-Type: {kind}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes())?;
        let response = read_response(&mut self.stream, &mut self.buffered)
            .with_context(|| format!("{method} {path}"))?;
        ensure!(
            (200..300).contains(&response.status),
            "{method} {path}: {} {}",
            response.status,
            response.text().trim_end()
        );
        serde_json::from_slice(&response.body).with_context(|| format!("{method} {path} answers no JSON"))
    }
}
