//! `sidecar/`: the agent in front of one workload, in each of its pods.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, ensure};
use deploy_tests::{Cluster, PodSecurity, Team};
use lab::client;
use serde_json::Value;

fn address(pod: &Value) -> Result<IpAddr> {
    Ok(pod["status"]["podIP"].as_str().context("the pod has an address")?.parse()?)
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

#[test]
fn each_pod_of_the_workload_is_served_by_the_agent_in_it() -> Result<()> {
    let cluster = Cluster::running()?;
    let team = Team::create(&cluster, "sidecar", PodSecurity::Restricted)?;
    team.install("sidecar", &[])?;
    team.rolled_out("deployment/app")?;
    let pods = team.pods("app.kubernetes.io/name=app")?;
    ensure!(pods.len() == 2, "two pods, not {}", pods.len());
    // A replica's address is there once the Service's slice says that its pod is ready, some time behind the pod.
    cluster.eventually("each pod's address is among the Gateway's", || {
        let addresses = team.addresses("app")?;
        for pod in &pods {
            let at = address(pod)?;
            ensure!(addresses.contains(&at), "{at} of {} is not in {addresses:?}", name(pod));
        }
        Ok(())
    })?;
    for pod in &pods {
        let name = name(pod);
        // More than once: with the endpoints of other pods, half of the answers would be another pod's.
        for _ in 0..10 {
            let to = SocketAddr::new(address(pod)?, 80);
            let body = cluster.eventually("the agent in the pod answers", || {
                let response = client::get(cluster.outside(), to, "any.example", "/")?;
                ensure!(response.status == 200, "status {}", response.status);
                Ok(response.text())
            })?;
            ensure!(body.contains(name), "{name} is asked and another pod answers: {body}");
        }
        token_is_in_the_agents_container_alone(pod)?;
    }
    team.judge_requests(&[team.namespace()])?;
    Ok(())
}

fn token_is_in_the_agents_container_alone(pod: &Value) -> Result<()> {
    let has_token = |container: &Value| {
        container["volumeMounts"].as_array().is_some_and(|mounts| {
            mounts.iter().any(|mount| mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount")
        })
    };
    let spec = &pod["spec"];
    ensure!(has_token(&spec["initContainers"][0]), "the agent has no token");
    let workload = spec["containers"].as_array().context("the pod has containers")?;
    ensure!(!workload.iter().any(has_token), "the workload has a token");
    Ok(())
}
