//! Rights that are there, that are taken away, and that come back: what does not need them goes on.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use deploy_tests::manifests::{CLASS, Speaks, backend, gateway, route};
use deploy_tests::{Cluster, PodSecurity, Team};
use lab::client;
use serde_json::{Value, json};

fn status_of(cluster: &Cluster, to: SocketAddr, host: &str) -> Result<u16> {
    Ok(client::get(cluster.outside(), to, host, "/")?.status)
}

fn answers(cluster: &Cluster, to: SocketAddr, host: &str) -> Result<()> {
    cluster.eventually(&format!("{host} is served"), || {
        let status = status_of(cluster, to, host)?;
        ensure!(status == 200, "status {status}");
        Ok(())
    })
}

/// An agent, a backend, a Gateway on port 80 and a route without hostnames, answering.
fn serving<'a>(cluster: &'a Cluster, name: &str) -> Result<(Team<'a>, SocketAddr)> {
    let team = Team::create(cluster, name, PodSecurity::Restricted)?;
    team.install("deployment", &[])?;
    team.apply(&backend("web", Speaks::Http, 1))?;
    team.apply(&gateway("web", &[("http", "HTTP", 80)]))?;
    team.apply(&route("HTTPRoute", "web", "web", "http"))?;
    team.rolled_out("deployment/web")?;
    team.rolled_out("deployment/gateway-agent")?;
    let to = SocketAddr::new(team.address("web")?, 80);
    answers(cluster, to, "any.example")?;
    Ok((team, to))
}

fn set_hostname(team: &Team<'_>, hostname: &str) -> Result<()> {
    let patch = json!({ "spec": { "hostnames": [hostname] } });
    team.kubectl(["patch", "httproute", "web", "--type=merge", &format!("--patch={patch}")]).map(drop)
}

/// Whether every condition of the route's one parent is of its present generation.
fn is_current(route: &Value) -> Result<bool> {
    let generation = &route["metadata"]["generation"];
    let parents = route["status"]["parents"].as_array().context("the route has parents")?;
    let conditions: Vec<&Value> =
        parents.iter().filter_map(|parent| parent["conditions"].as_array()).flatten().collect();
    ensure!(!conditions.is_empty(), "no condition");
    Ok(conditions.iter().all(|condition| condition["observedGeneration"] == *generation))
}

/// Takes the rules that `unwanted` names out of one of the agent's Roles, and gives the rules as they were.
fn take_away(team: &Team<'_>, role: &str, unwanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let before = team.object("role", role)?["rules"].clone();
    let rules = before.as_array().context("a Role has rules")?;
    let rest: Vec<&Value> = rules.iter().filter(|rule| !unwanted(rule)).collect();
    set_rules(team, role, &json!(rest))?;
    Ok(before)
}

fn set_rules(team: &Team<'_>, role: &str, rules: &Value) -> Result<()> {
    let patch = json!({ "rules": rules });
    team.kubectl(["patch", "role", role, "--type=merge", &format!("--patch={patch}")]).map(drop)
}

fn is_about(rule: &Value, resource: &str) -> bool {
    rule["resources"].as_array().is_some_and(|resources| resources.iter().any(|name| name == resource))
}

// O54: no list of namespaces for a selector.
#[test]
fn a_selector_of_namespaces_needs_no_right_at_cluster_scope() -> Result<()> {
    let cluster = Cluster::running()?;
    let team = Team::create(&cluster, "selector", PodSecurity::Restricted)?;
    team.install("deployment", &[])?;
    team.apply(&backend("web", Speaks::Http, 1))?;
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": team.namespace() } });
    team.apply(
        &json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": { "name": "web" },
            "spec": { "gatewayClassName": CLASS, "listeners": [{
                "name": "http",
                "protocol": "HTTP",
                "port": 80,
                "allowedRoutes": { "namespaces": { "from": "Selector", "selector": selector } },
            }]},
        })
        .to_string(),
    )?;
    team.apply(&route("HTTPRoute", "web", "web", "http"))?;
    team.rolled_out("deployment/web")?;
    team.rolled_out("deployment/gateway-agent")?;
    answers(&cluster, SocketAddr::new(team.address("web")?, 80), "any.example")?;
    team.judge_requests(&[team.namespace()])?;
    Ok(())
}

// O54: a right that is taken away at run time.
#[test]
fn without_the_right_to_secrets_http_goes_on() -> Result<()> {
    let cluster = Cluster::running()?;
    let (team, to) = serving(&cluster, "secrets")?;
    set_rules(&team, "gateway-agent", &rules_without_secrets(&team)?)?;
    // An agent that starts now cannot list them at all.
    team.kubectl(["rollout", "restart", "deployment/gateway-agent"])?;
    team.rolled_out("deployment/gateway-agent")?;
    set_hostname(&team, "later.example")?;
    answers(&cluster, to, "later.example")?;
    cluster.eventually("status follows", || {
        ensure!(is_current(&team.object("httproute", "web")?)?, "conditions of another generation");
        Ok(())
    })?;
    // It asked whether it may before it asked for Secrets: nothing was refused.
    team.judge_requests(&[team.namespace()])?;
    Ok(())
}

fn rules_without_secrets(team: &Team<'_>) -> Result<Value> {
    let mut rules = team.object("role", "gateway-agent")?["rules"].clone();
    for rule in rules.as_array_mut().context("a Role has rules")? {
        if let Some(resources) = rule["resources"].as_array_mut() {
            resources.retain(|resource| resource != "secrets");
        }
    }
    Ok(rules)
}

// O55: without the lease nobody writes, everybody serves; with it again, status follows.
#[test]
fn without_the_right_to_leases_serving_goes_on_and_status_follows_later() -> Result<()> {
    let cluster = Cluster::running()?;
    let (team, to) = serving(&cluster, "leases")?;
    let rights = ["gateway-agent", "gateway-agent-home"]
        .into_iter()
        .map(|role| Ok((role, take_away(&team, role, |rule| is_about(rule, "leases"))?)))
        .collect::<Result<Vec<_>>>()?;
    cluster.eventually("the lease is not renewed any more", || {
        let text = team.kubectl(["get", "leases", "--output=json"])?;
        let leases: Value = serde_json::from_str(&text)?;
        let leases = leases["items"].as_array().context("a list")?;
        ensure!(!leases.is_empty(), "there is no lease");
        ensure!(leases.iter().all(is_expired), "one is still held");
        Ok(())
    })?;
    set_hostname(&team, "unled.example")?;
    answers(&cluster, to, "unled.example")?;
    ensure!(!is_current(&team.object("httproute", "web")?)?, "status was written without the lease");
    for (role, rules) in &rights {
        set_rules(&team, role, rules)?;
    }
    cluster.eventually("status follows", || {
        ensure!(is_current(&team.object("httproute", "web")?)?, "conditions of another generation");
        Ok(())
    })
}

fn is_expired(lease: &Value) -> bool {
    let spec = &lease["spec"];
    let (Some(renewed), Some(seconds)) = (spec["renewTime"].as_str(), spec["leaseDurationSeconds"].as_i64())
    else {
        return true;
    };
    let Ok(renewed) = renewed.parse::<jiff::Timestamp>() else { return false };
    jiff::Timestamp::now().duration_since(renewed).as_secs() > seconds
}
