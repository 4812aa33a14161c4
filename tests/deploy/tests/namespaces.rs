//! One agent for several namespaces: those of one team by Roles, and all of them by a ClusterRole.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use deploy_tests::manifests::{Speaks, backend, gateway, route};
use deploy_tests::{Cluster, PodSecurity, Team, bases};
use lab::client;

fn apply_web(team: &Team<'_>) -> Result<()> {
    team.apply(&backend("web", Speaks::Http, 1))?;
    team.apply(&gateway("web", &[("http", "HTTP", 80)]))?;
    team.apply(&route("HTTPRoute", "web", "web", "http"))?;
    team.rolled_out("deployment/web")
}

fn answers(cluster: &Cluster, team: &Team<'_>) -> Result<()> {
    let to = SocketAddr::new(team.address("web")?, 80);
    cluster.eventually("the Gateway answers", || {
        let response = client::get(cluster.outside(), to, "any.example", "/")?;
        let body = response.text();
        ensure!(response.status == 200 && body.contains(team.namespace()), "{}: {body}", response.status);
        Ok(())
    })
}

#[test]
fn one_agent_serves_several_namespaces_by_roles_alone() -> Result<()> {
    let cluster = Cluster::running()?;
    cluster.apply_folder(&bases().join("cluster-admin/endpointslices"))?;
    let home = Team::create(&cluster, "several", PodSecurity::Restricted)?;
    let other = home.another("several-other")?;
    cluster.eventually("the rights in the other namespace", || other.grant_to(&home))?;
    let watched = format!("--watch-namespaces={},{}", home.namespace(), other.namespace());
    home.install("deployment", &[&watched])?;
    home.rolled_out("deployment/gateway-agent")?;
    apply_web(&home)?;
    apply_web(&other)?;
    answers(&cluster, &home)?;
    answers(&cluster, &other)?;
    home.judge_requests(&[home.namespace(), other.namespace()])?;
    Ok(())
}

#[test]
fn a_namespace_that_is_not_watched_is_left_alone() -> Result<()> {
    let cluster = Cluster::running()?;
    let home = Team::create(&cluster, "own", PodSecurity::Restricted)?;
    let stranger = home.another("stranger")?;
    home.install("deployment", &[])?;
    home.rolled_out("deployment/gateway-agent")?;
    stranger.apply(&gateway("web", &[("http", "HTTP", 80)]))?;
    apply_web(&home)?;
    answers(&cluster, &home)?;
    // By now an agent that took it would have written to it.
    let gateway = stranger.object("gateway", "web")?;
    let conditions = gateway["status"]["conditions"].as_array().cloned().unwrap_or_default();
    ensure!(
        conditions.iter().all(|condition| condition["status"] == "Unknown"),
        "a Gateway of another namespace has status: {conditions:?}"
    );
    home.judge_requests(&[home.namespace()])?;
    Ok(())
}
