//! What the agent may not see, and what is not there.

use anyhow::{Result, ensure};
use cluster_tests::team::Way;
use cluster_tests::{Agent, Faults, Options, Team, eventually, kubectl};
use serde_json::json;

use crate::bed::{ABSENT, HERE, PORT, gateway, route};

/// Takes the rights to one resource away from the agent's Role.
fn without(team: &Team, resource: &str) -> Result<()> {
    let mut role = team.get("role", "gateway-agent")?;
    for rule in role["rules"].as_array_mut().into_iter().flatten() {
        if let Some(resources) = rule["resources"].as_array_mut() {
            resources.retain(|name| name != resource);
        }
    }
    if let Some(rules) = role["rules"].as_array_mut() {
        rules.retain(|rule| rule["resources"].as_array().is_some_and(|resources| !resources.is_empty()));
    }
    team.replace(&role)?;
    // The API server learns of Roles by a watch of its own; an agent that is faster would keep what it has.
    let account = format!("--as={}", team.user());
    let kind = format!("{resource}.gateway.networking.k8s.io");
    eventually("the right is gone", || {
        ensure!(team.kubectl(&["auth", "can-i", "list", &kind, &account]).is_err(), "it is still there");
        Ok(())
    })
}

// O54: a kind that is forbidden is said, the rest works, and it is asked for again.
#[test]
fn a_forbidden_kind_is_reported_and_the_rest_works() -> Result<()> {
    let team = Team::new("access")?;
    without(&team, "tlsroutes")?;
    gateway(&team)?;
    route(&team, "one", "one.test")?;
    let agent = Agent::start(&team, &Options::default())?;
    agent.await_status(PORT, "one.test", HERE)?;
    agent.await_watch_state("TLSRoute", team.namespace(), "forbidden")?;
    ensure!(agent.log().contains("no right to list and watch tlsroutes"), "{}", agent.log());
    let denied = team.denied()?;
    ensure!(denied.is_empty(), "it was asked before it was tried: {denied:#?}");

    team.grant(&team)?;
    agent.await_watch_state("TLSRoute", team.namespace(), "watching")
}

// O54: a right that is taken away while it is used.
#[test]
fn a_right_that_is_taken_away_leaves_what_was_known() -> Result<()> {
    let team = Team::new("access")?;
    gateway(&team)?;
    route(&team, "one", "one.test")?;
    let agent = Agent::start(&team, &Options { way: Way::Faults, ..Options::default() })?;
    agent.await_status(PORT, "one.test", HERE)?;
    agent.await_watch_state("HTTPRoute", team.namespace(), "watching")?;
    without(&team, "httproutes")?;
    let faults = Faults::of(&team)?;
    // The API server does not end a watch whose right was taken away.
    faults.watches(json!({"resource": "httproutes"}), "end")?;
    agent.await_watch_state("HTTPRoute", team.namespace(), "forbidden")?;
    agent.await_status(PORT, "one.test", HERE)?;
    ensure!(agent.is_ready());
    team.grant(&team)?;
    agent.await_watch_state("HTTPRoute", team.namespace(), "watching")
}

// O53: no definitions at first, and later all of them.
#[test]
fn definitions_that_arrive_later_are_picked_up() -> Result<()> {
    let team = Team::new("access")?;
    gateway(&team)?;
    route(&team, "one", "one.test")?;
    let faults = Faults::of(&team)?;
    let missing = faults.add(
        json!({"path": "/apis/gateway.networking.k8s.io"}),
        json!({"fault": "refuse", "code": 404, "reason": "NotFound"}),
    )?;
    let agent = Agent::start(&team, &Options { way: Way::Faults, ..Options::default() })?;
    agent.await_watch_state("HTTPRoute", team.namespace(), "missing")?;
    agent.await_watch_state("Service", team.namespace(), "watching")?;
    ensure!(agent.status(PORT, "one.test") == 0);
    missing.end()?;
    agent.await_watch_state("HTTPRoute", team.namespace(), "watching")?;
    agent.await_status(PORT, "one.test", HERE)
}

// O53: one kind goes away, and comes back.
#[test]
fn a_kind_that_goes_away_takes_nothing_else_with_it() -> Result<()> {
    let team = Team::new("access")?;
    gateway(&team)?;
    route(&team, "one", "one.test")?;
    let agent = Agent::start(&team, &Options { way: Way::Faults, ..Options::default() })?;
    agent.await_watch_state("UDPRoute", team.namespace(), "watching")?;
    let faults = Faults::of(&team)?;
    let missing = faults.add(
        json!({"resource": "udproutes"}),
        json!({"fault": "refuse", "code": 404, "reason": "NotFound"}),
    )?;
    faults.watches(json!({"resource": "udproutes"}), "end")?;
    agent.await_watch_state("UDPRoute", team.namespace(), "missing")?;
    agent.await_status(PORT, "one.test", HERE)?;
    missing.end()?;
    agent.await_watch_state("UDPRoute", team.namespace(), "watching")
}

/// Cluster-wide objects that go with the test.
struct Cluster<'a>(&'a str);

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        drop(kubectl(&["delete", "-f", "-", "--ignore-not-found", "--wait=false"], self.0));
    }
}

#[test]
fn a_class_of_another_controller_is_left_alone() -> Result<()> {
    let team = Team::new("access")?;
    gateway(&team)?;
    let (name, user) = (team.namespace().to_owned(), team.namespace());
    let class = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: {name}}}\n\
         spec: {{controllerName: example.com/other}}\n"
    );
    let rights = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {name}}}\nrules:\n\
         - {{apiGroups: [gateway.networking.k8s.io], resources: [gatewayclasses], verbs: [get, list, watch]}}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {name}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {name}}}\n\
         subjects: [{{kind: ServiceAccount, name: gateway-agent, namespace: {user}}}]\n"
    );
    let (_class, _rights) = (Cluster(&class), Cluster(&rights));
    kubectl(&["apply", "--server-side", "--validate=false", "-f", "-"], &class)?;
    kubectl(&["apply", "--server-side", "--validate=false", "-f", "-"], &rights)?;
    team.kubectl(&[
        "patch",
        "gateway",
        "edge",
        "--type=merge",
        "-p",
        &format!(r#"{{"spec":{{"gatewayClassName":"{name}"}}}}"#),
    ])?;
    let options = Options { extra: vec!["--gateway-class-name".into(), name.clone()], ..Options::default() };
    let agent = Agent::start(&team, &options)?;
    ensure!(agent.status(PORT, "one.test") == 0, "{}", agent.log());
    ensure!(agent.cluster()?["foreignClasses"] == json!([name]));
    kubectl(&["delete", "gatewayclass", &name], "")?;
    agent.await_status(PORT, "one.test", ABSENT)
}

#[test]
fn all_namespaces_are_watched_with_a_cluster_role_only() -> Result<()> {
    let (team, other) = (Team::without_rights("access")?, Team::without_rights("access")?);
    team.grant(&team)?;
    gateway(&other)?;
    let name = team.namespace();
    let rights = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {name}}}\nrules:\n\
         - {{apiGroups: [gateway.networking.k8s.io], resources: [\"*\"], verbs: [get, list, watch]}}\n\
         - {{apiGroups: [gateway.networking.k8s.io], resources: [gateways/status, httproutes/status], verbs: [update]}}\n\
         - {{apiGroups: [\"\"], resources: [services, configmaps, namespaces], verbs: [get, list, watch]}}\n\
         - {{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {name}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {name}}}\n\
         subjects: [{{kind: ServiceAccount, name: gateway-agent, namespace: {name}}}]\n"
    );
    let _rights = Cluster(&rights);
    kubectl(&["apply", "--server-side", "--validate=false", "-f", "-"], &rights)?;
    // A class of its own, for the cluster has other tests' Gateways too.
    let class = format!(r#"{{"spec":{{"gatewayClassName":"{name}"}}}}"#);
    other.kubectl(&["patch", "gateway", "edge", "--type=merge", "-p", &class])?;
    let extra = vec!["--all-namespaces".into(), "--gateway-class-name".into(), name.to_owned()];
    let agent = Agent::start(&team, &Options { extra, ..Options::default() })?;
    agent.await_status(PORT, "one.test", ABSENT)?;
    let cluster = agent.cluster()?;
    let secrets = cluster["watches"].as_array().into_iter().flatten().find(|watch| watch["kind"] == "Secret");
    ensure!(secrets.is_some_and(|watch| watch["state"] == "forbidden"), "{cluster:#}");
    let denied = team.denied()?;
    ensure!(denied.is_empty(), "{denied:#?}");
    Ok(())
}
