//! The bases with the kernel paths, as a user and not as root: a Deployment, a DaemonSet at the nodes' ports, and the same
//! in the nodes' own network.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use deploy_tests::manifests::{Speaks, backend, gateway, route};
use deploy_tests::{Cluster, PodSecurity, Team};
use lab::{Netns, client};
use serde_json::{Value, json};

/// The addresses of the two nodes.
const NODES: [&str; 4] = ["172.31.0.11", "172.31.0.12", "fd31::11", "fd31::12"];

fn get(netns: &Netns, to: SocketAddr) -> Result<String> {
    let response = client::get(netns, to, "any.example", "/")?;
    ensure!(response.status == 200, "status {}", response.status);
    Ok(response.text())
}

/// The server greets first, and answers TEST with what it is.
fn tcp(netns: &Netns, to: SocketAddr) -> Result<String> {
    let mut stream = client::connect(netns, to)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line).context("read the greeting")?;
    ensure!(!line.trim().is_empty(), "no greeting");
    stream.write_all(b"TEST\n")?;
    line.clear();
    reader.read_line(&mut line).context("read the answer")?;
    Ok(line)
}

fn udp(netns: &Netns, to: SocketAddr) -> Result<String> {
    let socket = client::udp(netns, to)?;
    Ok(String::from_utf8_lossy(&client::ask(&socket, b"hello")?).into_owned())
}

/// Each pod runs as a user with exactly the three capabilities, and programs do the work.
fn runs_in_the_kernel(team: &Team<'_>) -> Result<()> {
    let pods = team.pods("app.kubernetes.io/component=agent")?;
    ensure!(pods.len() == 2, "two pods, not {}", pods.len());
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let container = &pod["spec"]["containers"][0];
        let added = &container["securityContext"]["capabilities"]["add"];
        ensure!(*added == json!(["BPF", "NET_ADMIN", "PERFMON"]), "capabilities: {added}");
        ensure!(pod["spec"]["securityContext"]["runAsUser"] == 65532, "not root");
        let metrics = team.admin_page(name, "metrics")?;
        ensure!(
            metrics
                .lines()
                .any(|line| line.contains("datapath{") && line.contains("l4") && line.contains("tcx")),
            "{name} has no kernel path:\n{metrics}"
        );
    }
    Ok(())
}

/// Backends and routes of all three, and the Gateway's condition once the kernel has the streams.
fn streams(team: &Team<'_>) -> Result<()> {
    team.apply(&backend("web", Speaks::Http, 2))?;
    team.apply(&backend("lines", Speaks::Tcp, 2))?;
    team.apply(&backend("datagrams", Speaks::Udp, 2))?;
    for workload in ["deployment/web", "deployment/lines", "deployment/datagrams"] {
        team.rolled_out(workload)?;
    }
    team.apply(&gateway("all", &[("http", "HTTP", 80), ("lines", "TCP", 9000), ("datagrams", "UDP", 5300)]))?;
    team.apply(&route("HTTPRoute", "web", "all", "http"))?;
    team.apply(&route("TCPRoute", "lines", "all", "lines"))?;
    team.apply(&route("UDPRoute", "datagrams", "all", "datagrams"))
}

fn all_answer(cluster: &Cluster, at: IpAddr) -> Result<()> {
    let netns = cluster.outside();
    cluster.eventually("HTTP is answered", || get(netns, SocketAddr::new(at, 80)))?;
    cluster.eventually("TCP is answered", || tcp(netns, SocketAddr::new(at, 9000)))?;
    cluster.eventually("UDP is answered", || udp(netns, SocketAddr::new(at, 5300)))?;
    Ok(())
}

#[test]
fn a_deployment_serves_streams_in_the_kernel_as_a_user() -> Result<()> {
    let cluster = Cluster::running()?;
    let team = Team::create(&cluster, "kernel", PodSecurity::Privileged)?;
    team.install("deployment-ebpf", &[])?;
    streams(&team)?;
    team.rolled_out("deployment/gateway-agent")?;
    for address in team.addresses("all")? {
        all_answer(&cluster, address)?;
    }
    runs_in_the_kernel(&team)?;
    team.judge_requests(&[team.namespace()])?;
    Ok(())
}

/// The ports of the container that lead to it from the node.
fn host_ports(team: &Team<'_>) -> Result<Vec<u64>> {
    let daemonset = team.object("daemonset", "gateway-agent")?;
    let ports = daemonset["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().cloned();
    Ok(ports.unwrap_or_default().iter().filter_map(|port: &Value| port["hostPort"].as_u64()).collect())
}

#[test]
fn a_daemonset_serves_the_ports_of_every_node() -> Result<()> {
    let cluster = Cluster::running()?;
    let team = Team::create(&cluster, "nodes", PodSecurity::Privileged)?;
    team.install("daemonset", &[])?;
    team.apply(&backend("web", Speaks::Http, 2))?;
    team.apply(&gateway("web", &[("http", "HTTP", 80)]))?;
    team.apply(&route("HTTPRoute", "web", "web", "http"))?;
    team.rolled_out("deployment/web")?;
    team.rolled_out("daemonset/gateway-agent")?;
    team.address("web")?;
    ensure!(host_ports(&team)?.contains(&80), "port 80 of the node leads to the pod");
    for node in NODES {
        let to = SocketAddr::new(node.parse()?, 80);
        cluster.eventually(&format!("{node} answers"), || get(cluster.outside(), to))?;
    }
    runs_in_the_kernel(&team)?;
    team.judge_requests(&[team.namespace()])?;
    Ok(())
}

#[test]
fn on_the_host_network_a_daemonset_serves_at_the_nodes_own_addresses() -> Result<()> {
    let cluster = Cluster::running()?;
    let team = Team::create(&cluster, "hosts", PodSecurity::Privileged)?;
    team.install("daemonset-host-network", &[])?;
    streams(&team)?;
    team.rolled_out("daemonset/gateway-agent")?;
    team.address("all")?;
    for node in NODES {
        all_answer(&cluster, node.parse()?)?;
    }
    runs_in_the_kernel(&team)?;
    team.judge_requests(&[team.namespace()])?;
    Ok(())
}
