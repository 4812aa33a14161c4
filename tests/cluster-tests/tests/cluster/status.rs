//! What the agent writes into statuses, and what it leaves alone.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cluster_tests::team::Way;
use cluster_tests::{Agent, Faults, Options, Team, eventually, eventually_within};
use serde_json::{Value, json};

use crate::bed::{HERE, PORT, gateway, route};

const CONTROLLER: &str = "gateway-agent.dev/agent";
const STALE_CONTROLLER: &str = "example.org/stale-controller";
const STALE_CONDITION: &str = "example.org/StaleCondition";

/// The shortest that is allowed.
const LEASE: Duration = Duration::from_secs(12);

fn options(way: Way) -> Options {
    let extra = vec!["--lease-duration".into(), LEASE.as_secs().to_string()];
    Options { way, extra, ..Options::default() }
}

/// Entries of one controller.
fn entries(route: &Value, controller: &str) -> Vec<Value> {
    let parents = route.pointer("/status/parents").and_then(Value::as_array).cloned().unwrap_or_default();
    parents.into_iter().filter(|entry| entry["controllerName"] == controller).collect()
}

fn condition<'a>(holder: &'a Value, kind: &str) -> Option<&'a Value> {
    holder["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// The route, once each of its conditions of ours speaks of its present spec.
fn await_current(agent: &Agent, team: &Team, name: &str) -> Result<Value> {
    await_current_within(cluster_tests::DEADLINE, agent, team, name)
}

fn await_current_within(within: Duration, agent: &Agent, team: &Team, name: &str) -> Result<Value> {
    let mut current = Value::Null;
    eventually_within(within, &format!("the status of {name} is current"), || {
        let route = team.get("httproute", name)?;
        let ours = entries(&route, CONTROLLER);
        let generation = &route["metadata"]["generation"];
        let conditions = ours.iter().flat_map(|entry| entry["conditions"].as_array().into_iter().flatten());
        let is_current = |condition: &Value| condition["observedGeneration"] == *generation;
        let mut conditions = conditions.peekable();
        ensure!(conditions.peek().is_some() && conditions.all(is_current), "{}", route["status"]);
        current = route;
        Ok(())
    })
    .with_context(|| agent.log())?;
    Ok(current)
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

/// Replaces the status as somebody who does not look whose it is.
fn set_status(team: &Team, kind: &str, name: &str, status: &Value) -> Result<()> {
    let patch = json!({"status": status}).to_string();
    team.kubectl(&["patch", kind, name, "--subresource=status", "--type=merge", "-p", &patch]).map(drop)
}

fn writes(agent: &Agent) -> Result<u64> {
    number(agent, "gateway_agent_status_writes_total")
}

fn number(agent: &Agent, name: &str) -> Result<u64> {
    Ok(agent.metrics()?.sum(name, &[]) as u64)
}

#[test]
fn conditions_speak_of_the_present_spec_and_are_written_once() -> Result<()> {
    let team = Team::new("status")?;
    gateway(&team)?;
    route(&team, "one", "one.test")?;
    let agent = Agent::start(&team, &options(Way::Direct))?;
    let first = await_current(&agent, &team, "one")?;
    let [entry] = &entries(&first, CONTROLLER)[..] else { panic!("{}", first["status"]) };
    // Exactly as stored, with the defaults of the API.
    ensure!(entry["parentRef"] == first["spec"]["parentRefs"][0], "{entry}");
    ensure!(condition(entry, "Accepted").is_some_and(|accepted| accepted["status"] == "True"), "{entry}");
    eventually("the Gateway is programmed", || {
        let gateway = team.get("gateway", "edge")?;
        let status = &gateway["status"];
        ensure!(condition(status, "Programmed").is_some_and(|it| it["status"] == "True"), "{status}");
        ensure!(status["listeners"][0]["attachedRoutes"] == 1, "{status}");
        Ok(())
    })?;
    // Another object's change comes and goes through the writer without touching this one.
    route(&team, "two", "two.test")?;
    await_current(&agent, &team, "two")?;
    let again = team.get("httproute", "one")?;
    ensure!(version(&again) == version(&first), "it was written again: {again}");
    ensure!(team.denied()?.is_empty(), "{:?}", team.denied()?);
    Ok(())
}

#[test]
fn entries_and_conditions_of_others_stay_while_ours_change() -> Result<()> {
    let team = Team::new("status")?;
    gateway(&team)?;
    route(&team, "one", "one.test")?;
    let agent = Agent::start(&team, &options(Way::Direct))?;
    let route_before = await_current(&agent, &team, "one")?;
    let stale = json!({"type": STALE_CONDITION, "status": "True", "reason": "Seeded", "message": "",
        "lastTransitionTime": "2001-02-03T04:05:06Z", "observedGeneration": 1});
    let foreign = json!({"controllerName": STALE_CONTROLLER, "conditions": [stale],
        "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "unmanaged"}});
    let mut parents = vec![foreign.clone()];
    parents.extend(entries(&route_before, CONTROLLER));
    set_status(&team, "httproute", "one", &json!({"parents": parents}))?;
    // It is written beside the route's, in no particular order.
    let mut gateway_status = eventually("the Gateway's status is whole", || {
        let status = team.get("gateway", "edge")?["status"].take();
        let listener = status.pointer("/listeners/0").context("no status of the listener")?;
        let accepted = condition(listener, "Accepted").context("our condition")?;
        ensure!(accepted["status"] == "True", "{accepted}");
        Ok(status)
    })?;
    for holder in ["", "/listeners/0"] {
        let holder = gateway_status.pointer_mut(holder).context("a holder of conditions")?;
        holder["conditions"].as_array_mut().context("conditions")?.insert(0, stale.clone());
    }
    set_status(&team, "gateway", "edge", &gateway_status)?;

    route(&team, "one", "changed.test")?;
    let after = await_current(&agent, &team, "one")?;
    ensure!(entries(&after, STALE_CONTROLLER) == [foreign], "{}", after["status"]);
    ensure!(after["status"]["parents"][0]["controllerName"] == STALE_CONTROLLER, "{}", after["status"]);
    let patch = r#"[{"op": "add", "path": "/spec/listeners/0/hostname", "value": "*.test"}]"#;
    team.kubectl(&["patch", "gateway", "edge", "--type=json", "-p", patch])?;
    eventually("the Gateway's conditions are current", || {
        let gateway = team.get("gateway", "edge")?;
        for holder in ["/status", "/status/listeners/0"] {
            let holder = gateway.pointer(holder).context("a holder of conditions")?;
            ensure!(condition(holder, STALE_CONDITION) == Some(&stale), "{holder}");
            let ours = condition(holder, "Accepted").context("our condition")?;
            ensure!(ours["observedGeneration"] == gateway["metadata"]["generation"], "{holder}");
        }
        Ok(())
    })
    .with_context(|| agent.log())
}

#[test]
fn our_entry_goes_with_its_parent_and_leaves_the_others() -> Result<()> {
    let team = Team::new("status")?;
    gateway(&team)?;
    route(&team, "one", "one.test")?;
    let agent = Agent::start(&team, &options(Way::Direct))?;
    let current = await_current(&agent, &team, "one")?;
    let foreign = json!({"controllerName": STALE_CONTROLLER, "parentRef": {"name": "other"},
        "conditions": entries(&current, CONTROLLER)[0]["conditions"]});
    let mut parents = entries(&current, CONTROLLER);
    parents.push(foreign);
    set_status(&team, "httproute", "one", &json!({"parents": parents}))?;
    team.delete("gateway", "edge")?;
    eventually("our entry is gone", || {
        let route = team.get("httproute", "one")?;
        ensure!(entries(&route, CONTROLLER).is_empty(), "{}", route["status"]);
        ensure!(entries(&route, STALE_CONTROLLER).len() == 1, "{}", route["status"]);
        Ok(())
    })
    .with_context(|| agent.log())
}

// O47
#[test]
fn what_another_changes_is_restored_but_not_in_a_loop() -> Result<()> {
    let team = Team::new("status")?;
    gateway(&team)?;
    route(&team, "one", "one.test")?;
    let agent = Agent::start(&team, &options(Way::Direct))?;
    let current = await_current(&agent, &team, "one")?;
    let mut altered = current["status"].clone();
    altered["parents"][0]["conditions"][0]["message"] = "altered".into();
    set_status(&team, "httproute", "one", &altered)?;
    eventually("the message is ours again", || {
        let route = team.get("httproute", "one")?;
        ensure!(route["status"] == current["status"], "{}", route["status"]);
        Ok(())
    })
    .with_context(|| agent.log())?;

    let before = writes(&agent)?;
    eventually_within(Duration::from_secs(60), "the fight is noticed", || {
        set_status(&team, "httproute", "one", &altered)?;
        ensure!(number(&agent, "gateway_agent_status_fights_total")? == 1, "not yet");
        Ok(())
    })
    .with_context(|| agent.log())?;
    ensure!(writes(&agent)? - before <= 5, "it went on writing");
    eventually("an Event says so", || {
        let events = team.kubectl(&["get", "events", "-o", "json"])?;
        let events: Value = serde_json::from_str(&events)?;
        let is_it = |event: &Value| {
            event["reason"] == "StatusFight" && event["involvedObject"]["uid"] == current["metadata"]["uid"]
        };
        ensure!(events["items"].as_array().is_some_and(|events| events.iter().any(is_it)), "{events}");
        Ok(())
    })
    .with_context(|| agent.log())
}

// O47: half of the writes meet a conflict.
#[test]
fn conflicts_are_met_by_reading_again() -> Result<()> {
    let team = Team::new("status")?;
    gateway(&team)?;
    let agent = Agent::start(&team, &options(Way::Faults))?;
    let faults = Faults::of(&team)?;
    let conflict = faults.add(
        json!({"resource": "httproutes", "subresource": "status"}),
        json!({"fault": "refuse", "code": 409, "reason": "Conflict", "times": 3}),
    )?;
    route(&team, "one", "one.test")?;
    await_current(&agent, &team, "one")?;
    ensure!(conflict.hits()? == 3, "{}", agent.log());
    ensure!(number(&agent, "gateway_agent_status_conflicts_total")? == 3, "{}", agent.log());
    Ok(())
}

// O48: status that cannot be written keeps nobody waiting.
#[test]
fn serving_does_not_wait_for_status() -> Result<()> {
    let team = Team::new("status")?;
    gateway(&team)?;
    let agent = Agent::start(&team, &options(Way::Faults))?;
    let faults = Faults::of(&team)?;
    let hang = faults.add(json!({"subresource": "status"}), json!({"fault": "hang"}))?;
    route(&team, "one", "one.test")?;
    agent.await_status(PORT, "one.test", HERE)?;
    hang.end()?;
    await_current_within(Duration::from_secs(60), &agent, &team, "one")?;
    Ok(())
}

// O55
#[test]
fn who_loses_the_lease_writes_no_more_and_catches_up_with_it() -> Result<()> {
    let team = Team::new("status")?;
    gateway(&team)?;
    route(&team, "one", "one.test")?;
    let agent = Agent::start(&team, &options(Way::Faults))?;
    await_current(&agent, &team, "one")?;
    let faults = Faults::of(&team)?;
    let denied = faults
        .add(json!({"resource": "leases"}), json!({"fault": "refuse", "code": 403, "reason": "Forbidden"}))?;
    eventually_within(LEASE * 2, "it gives up", || {
        ensure!(!agent.leads(team.namespace())?, "not yet");
        Ok(())
    })?;
    let before = writes(&agent)?;
    route(&team, "one", "changed.test")?;
    route(&team, "two", "two.test")?;
    agent.await_status(PORT, "changed.test", HERE)?;
    agent.await_status(PORT, "two.test", HERE)?;
    ensure!(entries(&team.get("httproute", "two")?, CONTROLLER).is_empty(), "it wrote without the lease");
    ensure!(writes(&agent)? == before, "it wrote without the lease");
    denied.end()?;
    await_current_within(LEASE * 4, &agent, &team, "one")?;
    await_current(&agent, &team, "two")?;
    Ok(())
}

#[test]
fn two_agents_of_which_one_watches_both_namespaces_do_not_fight() -> Result<()> {
    let (one, two) = (Team::new("status")?, Team::new("status")?);
    two.grant(&one)?;
    for team in [&one, &two] {
        gateway(team)?;
        route(team, "own", "own.test")?;
    }
    let home = Agent::start(&two, &options(Way::Direct))?;
    await_current(&home, &two, "own")?;
    let namespaces = format!("{},{}", one.namespace(), two.namespace());
    let mut both = options(Way::Direct);
    both.extra.extend(["--watch-namespaces".into(), namespaces]);
    let both = Agent::start(&one, &both)?;
    await_current(&both, &one, "own")?;
    // A round of changes that both see.
    route(&two, "more", "more.test")?;
    route(&one, "more", "more.test")?;
    await_current(&home, &two, "more")?;
    await_current(&both, &one, "more")?;
    for (team, writer) in [(&one, &both), (&two, &home)] {
        let own = team.get("httproute", "own")?;
        ensure!(entries(&own, CONTROLLER).len() == 1, "{}", own["status"]);
        ensure!(number(writer, "gateway_agent_status_alterations_total")? == 0, "{}", writer.log());
        ensure!(number(writer, "gateway_agent_status_conflicts_total")? == 0, "{}", writer.log());
    }
    Ok(())
}

#[test]
fn parameters_that_are_not_valid_are_told_by_an_event() -> Result<()> {
    let team = Team::new("status")?;
    gateway(&team)?;
    let agent = Agent::start(&team, &options(Way::Direct))?;
    let parameters = json!({"spec": {"infrastructure": {"parametersRef": {"group": "", "kind": "ConfigMap", "name": "absent"}}}});
    team.kubectl(&["patch", "gateway", "edge", "--type=merge", "-p", &parameters.to_string()])?;
    eventually("kubectl describe shows it", || {
        let text = team.kubectl(&["describe", "gateway", "edge"])?;
        let events = text.split_once("Events:").map(|(_, events)| events).unwrap_or_default();
        ensure!(events.contains("InvalidParameters") && events.contains("absent"), "{text}");
        Ok(())
    })
    .with_context(|| agent.log())
}

#[test]
fn the_scope_is_told_in_a_config_map_and_a_replica_leaves_it_when_it_ends() -> Result<()> {
    let team = Team::new("status")?;
    let replica = |name: &str| {
        let mut replica = options(Way::Direct);
        replica.extra.extend(["--pod-name".into(), name.into()]);
        replica
    };
    let first = Agent::start(&team, &replica("first"))?;
    let second = Agent::start(&team, &replica("second"))?;
    let data = |key: &str| -> Result<Option<String>> {
        let map = team.get("configmap", "gateway-agent-gateway-agent")?;
        Ok(map["data"][key].as_str().map(str::to_owned))
    };
    eventually("both replicas are in it", || {
        ensure!(data("watchedNamespaces")?.as_deref() == Some(team.namespace()));
        ensure!(
            data("supportedFeatures")?
                .is_some_and(|features| features.lines().any(|line| line == "HTTPRoute"))
        );
        for key in ["replica.first", "replica.second"] {
            let text = data(key)?.with_context(|| format!("no {key}"))?;
            let report: Value = serde_json::from_str(&text)?;
            ensure!(report["isSynced"] == true, "{report}");
        }
        Ok(())
    })
    .with_context(|| first.log())?;
    second.terminate()?;
    ensure!(data("replica.second")?.is_none() && data("replica.first")?.is_some());
    Ok(())
}
