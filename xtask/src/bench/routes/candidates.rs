//! The gateways under comparison: two replicas of each, in a namespace of its own, for its own routes alone.
//!
//! Each comes as its documentation installs it, with its defaults.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::api::{Cluster, Connection, Name};
use super::pods::Pod;
use super::watch::Watcher;
use super::{objects, traefik};
use crate::bench::wheel::folder;
use crate::command::{output, program};

pub(super) const REPLICAS: usize = 2;

pub(super) struct Candidate {
    pub(super) name: &'static str,
    pub(super) namespace: String,
    /// As the API server knows its replicas.
    pub(super) user: String,
    /// Where each replica serves the Gateway's listener.
    pub(super) replicas: Vec<SocketAddr>,
    pub(super) pods: Vec<Pod>,
    pub(super) watcher: Watcher,
    pub(super) api: Connection,
    /// Routes `r0` to this one are there.
    pub(super) routes: usize,
    /// How long all of them took to be accepted, summed up.
    pub(super) growth_s: f64,
    /// How long all of them took to be created, likewise.
    pub(super) creation_s: f64,
}

pub(super) const AGENT: &str = "agent";
pub(super) const TRAEFIK: &str = "traefik";

fn namespace(candidate: &str) -> String {
    format!("bench-routes-{candidate}")
}

/// Removes what an earlier run left, or this one.
pub(super) fn remove(cluster: &Name) -> Result<()> {
    let [agent, traefik] = [AGENT, TRAEFIK].map(namespace);
    output(&mut cluster.kubectl(&[
        "delete",
        "ns",
        "--ignore-not-found",
        "--timeout=400s",
        &agent,
        &traefik,
    ]))?;
    for kind in ["clusterrolebindings", "clusterroles", "gatewayclasses"] {
        output(&mut cluster.kubectl(&["delete", kind, "--ignore-not-found", &traefik]))?;
    }
    Ok(())
}

/// Where the backends of every candidate are: outside of the nodes.
pub(super) struct Backends<'a> {
    pub(super) address: &'a str,
    pub(super) ports: [u16; 2],
}

impl Candidate {
    pub(super) fn install(
        cluster: &Cluster,
        name: &'static str,
        binary: &Path,
        backends: &Backends<'_>,
    ) -> Result<Self> {
        let namespace = namespace(name);
        cluster.name.apply(&[objects::namespace(&namespace)])?;
        let (account, port) = if name == AGENT {
            ("gateway-agent", agent(&cluster.name, &namespace, binary)?)
        } else {
            ("traefik", traefik::install(&cluster.name, &namespace)?)
        };
        let class = if name == AGENT { "gateway-agent" } else { &namespace };
        let mut common = vec![objects::gateway(&namespace, class, port)];
        for (service, port) in objects::BACKENDS.into_iter().zip(backends.ports) {
            common.extend(objects::backend(&namespace, service, backends.address, port));
        }
        cluster.name.apply(&common)?;
        let deployment = format!("deployment/{account}");
        output(&mut cluster.name.kubectl(&[
            "rollout",
            "status",
            &deployment,
            "-n",
            &namespace,
            "--timeout=180s",
        ]))?;
        let mut api = cluster.connect()?;
        let what = format!("both replicas of {name} have an address and a port for the Gateway");
        let replicas = lab::eventually(&what, || replicas(&mut api, &namespace))?;
        let pods = pods(&mut api, &namespace)?;
        Ok(Self {
            name,
            user: format!("system:serviceaccount:{namespace}:{account}"),
            watcher: Watcher::start(&cluster.name, &namespace)?,
            namespace,
            replicas,
            pods,
            api,
            routes: 0,
            growth_s: 0.0,
            creation_s: 0.0,
        })
    }
}

/// `deploy/deployment` as it is, in a namespace. Gives the port for the Gateway.
fn agent(cluster: &Name, namespace: &str, binary: &Path) -> Result<u16> {
    const IMAGE: &str = "docker.io/local/gateway-agent:bench";
    let archive = folder()?.join("agent.tar");
    output(
        program("/proc/self/exe")
            .args(["image", "--name", IMAGE, "--binary"])
            .arg(binary)
            .arg("--output")
            .arg(&archive),
    )?;
    cluster.load(&archive)?;
    let text = output(&mut cluster.kubectl(&[
        "create",
        "--dry-run=client",
        "-o",
        "json",
        "-k",
        "deploy/deployment",
    ]))?;
    let mut manifests = Vec::new();
    for object in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        let object = object.context("kubectl prints JSON")?;
        match object["items"].as_array() {
            Some(items) => manifests.extend(items.iter().cloned()),
            None => manifests.push(object),
        }
    }
    ensure!(!manifests.is_empty(), "deploy/deployment is empty");
    for object in &mut manifests {
        object["metadata"]["namespace"] = json!(namespace);
        for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            subject["namespace"] = json!(namespace);
        }
        if object["kind"] == "Deployment" {
            let container = &mut object["spec"]["template"]["spec"]["containers"][0];
            container["image"] = json!(IMAGE);
            container["imagePullPolicy"] = json!("Never");
        }
    }
    cluster.apply(&manifests)?;
    Ok(80)
}

/// Whether this build knows a cluster at all.
pub(super) fn agent_has_cluster(binary: &Path) -> Result<bool> {
    Ok(output(program(binary).arg("--help"))?.contains("--watch-namespaces"))
}

/// The endpoints of the namespace's one LoadBalancer Service: the Gateway's.
fn replicas(api: &mut Connection, namespace: &str) -> Result<Vec<SocketAddr>> {
    let services = api.get(&format!("/api/v1/namespaces/{namespace}/services"))?;
    let services = services["items"].as_array().context("a list has items")?;
    let service = services.iter().find(|service| service["spec"]["type"] == "LoadBalancer");
    let service =
        service.and_then(|service| service["metadata"]["name"].as_str()).context("no Service yet")?;
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let slices = api.get(&format!("{path}?labelSelector=kubernetes.io/service-name={service}"))?;
    let mut found = Vec::new();
    for slice in slices["items"].as_array().context("a list has items")? {
        let Some(port) = slice["ports"][0]["port"].as_u64() else { continue };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            if slice["addressType"] == "IPv4" && endpoint["conditions"]["ready"] == true {
                let address = endpoint["addresses"][0].as_str().context("an endpoint has an address")?;
                found.push(SocketAddr::new(address.parse()?, u16::try_from(port)?));
            }
        }
    }
    ensure!(found.len() == REPLICAS, "the Service {service} has these endpoints: {found:?}");
    Ok(found)
}

/// All pods of the namespace are the gateway's: its backends are elsewhere.
fn pods(api: &mut Connection, namespace: &str) -> Result<Vec<Pod>> {
    let pods = api.get(&format!("/api/v1/namespaces/{namespace}/pods"))?;
    let pods = pods["items"].as_array().context("a list has items")?;
    ensure!(pods.len() == REPLICAS, "{} pods in {namespace}", pods.len());
    pods.iter().map(|pod| Pod::find(pod["metadata"]["uid"].as_str().context("a pod has a UID")?)).collect()
}
