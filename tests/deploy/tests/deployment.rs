//! `deployment/`: without any capability in a namespace that enforces `restricted`, applied by an admin of that
//! namespace; what it asks of the API server; an update under load.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use deploy_tests::manifests::{Speaks, backend, gateway, route};
use deploy_tests::{Cluster, Load, PodSecurity, Team};
use lab::client;

/// Clients of each kind; enough that every moment of an update has a request in it.
const CLIENTS: usize = 4;

fn serving<'a>(cluster: &'a Cluster, name: &str) -> Result<(Team<'a>, SocketAddr)> {
    let team = Team::create(cluster, name, PodSecurity::Restricted)?;
    team.apply(&backend("web", Speaks::Http, 2))?;
    team.apply(&gateway("web", &[("http", "HTTP", 80)]))?;
    team.apply(&route("HTTPRoute", "web", "web", "http"))?;
    team.install("deployment", &[])?;
    team.rolled_out("deployment/web")?;
    team.rolled_out("deployment/gateway-agent")?;
    let to = SocketAddr::new(team.address("web")?, 80);
    // Often enough that either replica is asked: the status says what the leader serves.
    cluster.eventually("both replicas answer", || {
        for _ in 0..20 {
            let response = client::get(cluster.outside(), to, "any.example", "/")?;
            ensure!(response.status == 200, "status {}", response.status);
        }
        Ok(())
    })?;
    Ok((team, to))
}

#[test]
fn without_capabilities_it_serves_port_80_under_restricted_with_roles_only() -> Result<()> {
    let cluster = Cluster::running()?;
    let (team, to) = serving(&cluster, "restricted")?;
    let response = client::get(cluster.outside(), to, "any.example", "/path")?;
    let body = response.text();
    ensure!(body.contains(team.namespace()), "the backend's answer names its namespace: {body}");

    let pods = team.pods("app.kubernetes.io/component=agent")?;
    ensure!(pods.len() == 2, "two replicas, not {}", pods.len());
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let metrics = team.admin_page(name, "metrics")?;
        ensure!(
            metrics
                .lines()
                .any(|line| line.contains("datapath{") && line.contains("l4") && line.contains("userspace")),
            "{name} serves in userspace:\n{metrics}"
        );
    }
    let summary = team.judge_requests(&[team.namespace()])?;
    println!("{summary:#?}");
    Ok(())
}

#[test]
fn a_rolling_update_loses_no_request() -> Result<()> {
    let cluster = Cluster::running()?;
    let (team, to) = serving(&cluster, "rolling")?;
    let load = Load::start(cluster.outside(), to, "any.example", CLIENTS);
    let updated = (|| {
        team.kubectl(["rollout", "restart", "deployment/gateway-agent"])?;
        team.rolled_out("deployment/gateway-agent")?;
        // The old replicas end only behind that.
        cluster.eventually("the old replicas are gone", || {
            let n_pods = team.pods("app.kubernetes.io/component=agent")?.len();
            ensure!(n_pods == 2, "{n_pods} pods");
            Ok(())
        })
    })();
    let tally = load.finish()?;
    updated?;
    println!("{} requests answered", tally.answered);
    ensure!(tally.lost.is_empty(), "lost beside {} answered: {:#?}", tally.answered, tally.lost);
    Ok(())
}
