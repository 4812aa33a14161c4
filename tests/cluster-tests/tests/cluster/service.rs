//! Gateways that have Services, with kube-proxy and a load balancer between them and their clients.
//!
//! The agent is a process outside the nodes, so its Services lead to it by EndpointSlices; in pods of its own namespace
//! they do by a selector, which the tests of `deploy/` show.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, bail, ensure};
use cluster_tests::{Agent, Options, Team, eventually, kubectl};
use serde_json::{Value, json};

use crate::bed::{ABSENT, HERE, route};

const SERVICE: &str = "edge-gateway-agent";

/// The address of the network outside the nodes, in both families.
const OUTSIDE: [&str; 2] = ["172.31.0.1", "fd31::1"];

fn team() -> Result<Team> {
    let team = Team::new("service")?;
    may_write_slices(&team, &team)?;
    Ok(team)
}

/// As `deploy/watched-namespace` gives it.
fn may_write_slices(team: &Team, other: &Team) -> Result<()> {
    let name = format!("slices-{}", other.namespace());
    let verbs = "--verb=create,update,patch,delete";
    team.kubectl(&["create", "role", &name, verbs, "--resource=endpointslices.discovery.k8s.io"])?;
    let account = format!("--serviceaccount={}:gateway-agent", other.namespace());
    team.kubectl(&["create", "rolebinding", &name, &format!("--role={name}"), &account]).map(drop)
}

fn options(extra: &[&str]) -> Result<Options> {
    let addresses: Vec<IpAddr> = OUTSIDE.iter().map(|address| address.parse()).collect::<Result<_, _>>()?;
    let pod_ips = ["--pod-ips".to_owned(), OUTSIDE.join(",")];
    let extra = pod_ips.into_iter().chain(extra.iter().map(|word| (*word).to_owned())).collect();
    Ok(Options { provider: "service", addresses, extra, ..Options::default() })
}

fn gateway(team: &Team, spec: Value) -> Result<()> {
    let mut spec = spec;
    spec["gatewayClassName"] = "gateway-agent".into();
    if spec.get("listeners").is_none() {
        spec["listeners"] = json!([{"name": "http", "protocol": "HTTP", "port": 80}]);
    }
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "edge"}, "spec": spec,
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]},
    });
    team.apply(&gateway.to_string())?;
    team.apply(&service.to_string())
}

/// The Gateway's Service, once `check` is content with it.
fn service(team: &Team, agent: &Agent, check: impl Fn(&Value) -> Result<()>) -> Result<Value> {
    let mut found = Value::Null;
    eventually("the Service is as wanted", || {
        found = team.get("service", SERVICE)?;
        check(&found).with_context(|| found.to_string())
    })
    .with_context(|| agent.log())?;
    Ok(found)
}

fn addresses(service: &Value) -> Result<Vec<IpAddr>> {
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array().context("no address yet")?;
    ingress.iter().map(|ingress| Ok(ingress["ip"].as_str().context("an address")?.parse()?)).collect()
}

fn target(service: &Value, port: u64) -> Result<u64> {
    let ports = service["spec"]["ports"].as_array().context("ports")?;
    let found = ports.iter().find(|each| each["port"] == port).with_context(|| format!("no port {port}"))?;
    found["targetPort"].as_u64().context("a number")
}

fn await_answer(agent: &Agent, address: IpAddr, port: u16, host: &str, expected: u16) -> Result<()> {
    let address = SocketAddr::new(address, port);
    eventually(&format!("{host} at {address} answers {expected}"), || match agent.status_at(address, host) {
        status if status == expected => Ok(()),
        status => bail!("it answers {status}"),
    })
    .with_context(|| agent.log())
}

#[test]
fn gateway_is_reached_at_the_load_balancers_addresses_of_both_families() -> Result<()> {
    let team = team()?;
    let infrastructure = json!({"labels": {"team": "blue"}, "annotations": {"example.com/note": "x"}});
    gateway(&team, json!({"infrastructure": infrastructure}))?;
    route(&team, "one", "one.test")?;
    let agent = Agent::start(&team, &options(&[])?)?;
    let service = service(&team, &agent, |service| {
        ensure!(addresses(service)?.len() == 2, "addresses are missing");
        Ok(())
    })?;
    let labels = &service["metadata"]["labels"];
    ensure!(
        labels["gateway.networking.k8s.io/gateway-name"] == "edge" && labels["team"] == "blue",
        "{labels}"
    );
    ensure!(service["metadata"]["annotations"]["example.com/note"] == "x");
    ensure!(service["metadata"]["ownerReferences"][0]["name"] == "edge");
    for address in addresses(&service)? {
        await_answer(&agent, address, 80, "one.test", HERE)?;
        await_answer(&agent, address, 80, "other.test", ABSENT)?;
    }
    let mut listed: Vec<IpAddr> = Vec::new();
    eventually("the Gateway lists them", || {
        listed = agent.object("Gateway", team.namespace(), "edge")?["addresses"]
            .as_array()
            .context("addresses")?
            .iter()
            .filter_map(|address| address.as_str()?.parse().ok())
            .collect();
        ensure!(listed == addresses(&service)?, "{listed:?}");
        Ok(())
    })?;
    // Nothing was asked for that it may not, and nothing is written that is as it should be.
    let denied = team.denied()?;
    ensure!(denied.is_empty(), "{denied:#?}");
    ensure!(agent.metrics()?.sum("gateway_agent_provision_writes_total", &[("result", "failed")]) == 0.0);
    team.delete("gateway", "edge")?;
    eventually("the garbage collector has taken the Service", || {
        ensure!(team.get("service", SERVICE).is_err(), "it is there");
        Ok(())
    })
}

#[test]
fn ports_follow_the_listeners_and_outlive_the_leader() -> Result<()> {
    let team = team()?;
    let listener =
        |name: &str, protocol: &str, port: u16| json!({"name": name, "protocol": protocol, "port": port});
    let http = listener("http", "HTTP", 80);
    gateway(&team, json!({"listeners": [&http]}))?;
    route(&team, "one", "one.test")?;
    let agent = Agent::start(&team, &options(&[])?)?;
    let first = service(&team, &agent, |service| addresses(service).map(drop))?;
    let before = target(&first, 80)?;
    gateway(
        &team,
        json!({"listeners": [&http, listener("more", "HTTP", 8080), listener("dns", "UDP", 53)]}),
    )?;
    let more = service(&team, &agent, |service| target(service, 53).map(drop))?;
    ensure!(target(&more, 80)? == before, "the port moved");
    let address = addresses(&first)?[0];
    await_answer(&agent, address, 8080, "one.test", HERE)?;
    gateway(&team, json!({"listeners": [&http]}))?;
    service(&team, &agent, |service| {
        ensure!(service["spec"]["ports"].as_array().context("ports")?.len() == 1, "too many ports");
        Ok(())
    })?;
    agent.terminate()?;
    let agent = Agent::start(&team, &options(&[])?)?;
    await_answer(&agent, address, 80, "one.test", HERE)?;
    let after = service(&team, &agent, |_| Ok(()))?;
    ensure!(target(&after, 80)? == before, "the port moved");
    Ok(())
}

#[test]
fn service_of_somebody_else_is_left_alone_and_said() -> Result<()> {
    let team = team()?;
    let foreign = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE},
        "spec": {"ports": [{"port": 80, "targetPort": 61_000}], "selector": {"app": "theirs"}},
    });
    team.apply(&foreign.to_string())?;
    let before = team.get("service", SERVICE)?;
    gateway(&team, json!({}))?;
    let agent = Agent::start(&team, &options(&[])?)?;
    eventually("the Gateway says so", || {
        let gateway = agent.object("Gateway", team.namespace(), "edge")?.to_string();
        ensure!(gateway.contains("exists and is not this agent's"), "{gateway}");
        Ok(())
    })?;
    ensure!(
        team.get("service", SERVICE)?["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    );
    // Gone, it makes room.
    team.delete("service", SERVICE)?;
    service(&team, &agent, |service| addresses(service).map(drop)).map(drop)
}

#[test]
fn what_somebody_changes_is_put_right_and_what_others_add_stays() -> Result<()> {
    let team = team()?;
    gateway(&team, json!({}))?;
    let agent = Agent::start(&team, &options(&[])?)?;
    let first = service(&team, &agent, |service| addresses(service).map(drop))?;
    let before = target(&first, 80)?;
    let patch = json!([
        {"op": "replace", "path": "/spec/ports/0/targetPort", "value": 80},
        {"op": "add", "path": "/metadata/annotations/example.com~1theirs", "value": "x"},
    ]);
    team.kubectl(&["patch", "service", SERVICE, "--type=json", "-p", &patch.to_string()])?;
    let after = service(&team, &agent, |service| {
        ensure!(target(service, 80)? != 80, "not yet");
        Ok(())
    })?;
    ensure!(target(&after, 80)? == before, "another port");
    ensure!(after["metadata"]["annotations"]["example.com/theirs"] == "x");
    Ok(())
}

#[test]
fn parameters_make_the_service_what_they_say() -> Result<()> {
    let team = team()?;
    let parameters = |data: Value| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"}, "data": data});
        team.apply(&map.to_string())
    };
    parameters(json!({"serviceType": "ClusterIP", "sessionAffinity": "ClientIP"}))?;
    let infrastructure = json!({"parametersRef": {"group": "", "kind": "ConfigMap", "name": "p"}});
    gateway(&team, json!({"infrastructure": infrastructure}))?;
    let agent = Agent::start(&team, &options(&[])?)?;
    let first = service(&team, &agent, |_| Ok(()))?;
    ensure!(
        first["spec"]["type"] == "ClusterIP" && first["spec"]["sessionAffinity"] == "ClientIP",
        "{first}"
    );
    let says = |text: &str| {
        eventually("the Gateway says so", || {
            let gateway = agent.object("Gateway", team.namespace(), "edge")?.to_string();
            ensure!(gateway.contains(text), "{gateway}");
            Ok(())
        })
    };
    says(first["spec"]["clusterIP"].as_str().context("an address")?)?;
    parameters(json!({"serviceType": "Balanced"}))?;
    says("key serviceType: \\\"Balanced\\\" is not valid: one of LoadBalancer, ClusterIP, NodePort")?;
    parameters(
        json!({"externalTrafficPolicy": "Local", "loadBalancerSourceRanges": "172.31.0.0/16,fd31::/16"}),
    )?;
    let now = service(&team, &agent, |service| {
        ensure!(service["spec"]["externalTrafficPolicy"] == "Local", "not yet");
        Ok(())
    })?;
    ensure!(now["spec"]["type"] == "LoadBalancer" && now["spec"]["sessionAffinity"] == "None", "{now}");
    ensure!(now["metadata"]["uid"] == first["metadata"]["uid"], "it was made anew");
    Ok(())
}

#[test]
fn service_goes_when_the_class_does() -> Result<()> {
    let team = team()?;
    gateway(&team, json!({}))?;
    let agent = Agent::start(&team, &options(&[])?)?;
    service(&team, &agent, |_| Ok(()))?;
    let patch = json!({"spec": {"gatewayClassName": "somebody-elses"}}).to_string();
    team.kubectl(&["patch", "gateway", "edge", "--type=merge", "-p", &patch])?;
    eventually("the Service is deleted", || {
        ensure!(team.get("service", SERVICE).is_err(), "it is there");
        Ok(())
    })
    .with_context(|| agent.log())
}

/// Two agents of two namespaces watch both: each Gateway has one writer, and nothing is written to and fro.
#[test]
fn agents_of_two_namespaces_do_not_fight_over_a_service() -> Result<()> {
    let (one, two) = (team()?, team()?);
    for (here, there) in [(&one, &two), (&two, &one)] {
        here.grant(there)?;
        may_write_slices(here, there)?;
    }
    gateway(&one, json!({}))?;
    let both = format!("{},{}", one.namespace(), two.namespace());
    let options = options(&["--watch-namespaces", &both])?;
    let first = Agent::start(&one, &options)?;
    let second = Agent::start(&two, &options)?;
    service(&one, &first, |service| addresses(service).map(drop))?;
    let writes = || -> Result<f64> {
        let of = |agent: &Agent| -> Result<f64> {
            Ok(agent.metrics()?.sum("gateway_agent_provision_writes_total", &[]))
        };
        Ok(of(&first)? + of(&second)?)
    };
    // The Service and a slice for each family, in no particular order.
    eventually("all is written", || {
        ensure!(writes()? >= 3.0, "not yet");
        Ok(())
    })?;
    let settled = writes()?;
    let version = one.get("service", SERVICE)?["metadata"]["generation"].clone();
    // A change of another object, seen by both, is what would set them off.
    for (number, team) in [&one, &two, &one, &two].into_iter().enumerate() {
        route(team, &format!("r{number}"), &format!("r{number}.test"))?;
    }
    let seen = |agent: &Agent| agent.object("HTTPRoute", one.namespace(), "r2");
    eventually("both have seen it", || seen(&first).and_then(|_| seen(&second)).map(drop))?;
    ensure!(writes()? == settled, "{}\n{}", first.log(), second.log());
    ensure!(one.get("service", SERVICE)?["metadata"]["generation"] == version);
    let listed = kubectl(&["-n", one.namespace(), "get", "endpointslices", "-o", "name"], "")?;
    ensure!(listed.lines().filter(|line| line.contains(SERVICE)).count() == 2, "{listed}");
    Ok(())
}
