//! Watches: changes, and everything that can end one.

use anyhow::{Result, ensure};
use cluster_tests::team::Way;
use cluster_tests::{Agent, Faults, Options, Team, eventually};
use serde_json::json;

use crate::bed::{ABSENT, HERE, PORT, gateway, route};

fn by_proxy() -> Options {
    Options { way: Way::Faults, ..Options::default() }
}

#[test]
fn changes_in_the_api_are_served() -> Result<()> {
    let team = Team::new("watch")?;
    gateway(&team)?;
    route(&team, "one", "one.test")?;
    let agent = Agent::start(&team, &Options::default())?;
    agent.await_status(PORT, "one.test", HERE)?;

    route(&team, "two", "two.test")?;
    agent.await_status(PORT, "two.test", HERE)?;
    route(&team, "one", "other.test")?;
    agent.await_status(PORT, "one.test", ABSENT)?;
    agent.await_status(PORT, "other.test", HERE)?;
    team.delete("httproute", "two")?;
    agent.await_status(PORT, "two.test", ABSENT)?;
    team.delete("service", "web")?;
    agent.await_status(PORT, "other.test", 500)?;
    team.delete("gateway", "edge")?;
    agent.await_status(PORT, "other.test", 0)?;
    // O54: and nothing was asked for that it may not.
    let denied = team.denied()?;
    ensure!(denied.is_empty(), "{denied:#?}");
    Ok(())
}

// O52: 410 within a watch, and as the answer to one.
#[test]
fn a_version_that_was_forgotten_is_answered_by_one_list() -> Result<()> {
    let team = Team::new("watch")?;
    gateway(&team)?;
    let agent = Agent::start(&team, &by_proxy())?;
    let faults = Faults::of(&team)?;
    let restarts = |reason| -> Result<f64> {
        let labels = [("kind", "HTTPRoute"), ("reason", reason)];
        Ok(agent.metrics()?.sum("gateway_agent_watch_restarts_total", &labels))
    };
    eventually("the watch is open", || {
        ensure!(faults.watches(json!({"resource": "httproutes"}), "expire")? == 1, "not yet");
        Ok(())
    })?;
    route(&team, "one", "one.test")?;
    agent.await_status(PORT, "one.test", HERE)?;
    ensure!(restarts("expired")? == 1.0, "{}", agent.log());

    let gone = faults.add(
        json!({"verbs": ["watch"], "resource": "httproutes"}),
        json!({"fault": "refuse", "code": 410, "reason": "Expired", "times": 1}),
    )?;
    eventually("the watch is open", || {
        ensure!(faults.watches(json!({"resource": "httproutes"}), "end")? == 1, "not yet");
        Ok(())
    })?;
    route(&team, "two", "two.test")?;
    agent.await_status(PORT, "two.test", HERE)?;
    ensure!(gone.hits()? == 1 && restarts("expired")? == 2.0, "{}", agent.log());
    Ok(())
}

// O52: watches that end at once, and 429, 500 and broken connections.
#[test]
fn a_server_in_trouble_is_followed_all_the_same() -> Result<()> {
    let team = Team::new("watch")?;
    gateway(&team)?;
    let agent = Agent::start(&team, &by_proxy())?;
    agent.await_watch_state("HTTPRoute", team.namespace(), "watching")?;
    let faults = Faults::of(&team)?;
    let watches = json!({"verbs": ["watch"], "resource": "httproutes"});
    for (number, fault) in [
        json!({"fault": "refuse", "code": 500}),
        json!({"fault": "refuse", "code": 429, "retryAfter": 1}),
        json!({"fault": "drop"}),
        json!({"fault": "event", "code": 500, "reason": "InternalError"}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut rule = fault.clone();
        rule["times"] = 3.into();
        let fault = faults.add(watches.clone(), rule)?;
        faults.watches(json!({"resource": "httproutes"}), "cut")?;
        let host = format!("r{number}.test");
        route(&team, &format!("r{number}"), &host)?;
        agent.await_status(PORT, &host, HERE)?;
        ensure!(agent.is_ready());
        eventually("the fault was met", || {
            ensure!(fault.hits()? > 0, "not yet");
            Ok(())
        })?;
    }
    Ok(())
}

// O51: the connection neither ends nor says anything.
#[test]
fn a_watch_that_fell_silent_is_opened_anew() -> Result<()> {
    let team = Team::new("watch")?;
    gateway(&team)?;
    let options = Options { extra: vec!["--watch-idle-timeout".into(), "3".into()], ..by_proxy() };
    let agent = Agent::start(&team, &options)?;
    let faults = Faults::of(&team)?;
    eventually("the watch is open", || {
        ensure!(faults.watches(json!({"resource": "httproutes"}), "hold")? == 1, "not yet");
        Ok(())
    })?;
    route(&team, "one", "one.test")?;
    agent.await_status(PORT, "one.test", HERE)?;
    let labels = [("kind", "HTTPRoute"), ("reason", "idle")];
    ensure!(agent.metrics()?.sum("gateway_agent_watch_restarts_total", &labels) > 0.0);
    Ok(())
}

#[test]
fn several_namespaces_are_watched_with_namespaced_requests() -> Result<()> {
    let (team, other) = (Team::new("watch")?, Team::without_rights("watch")?);
    other.grant(&team)?;
    gateway(&team)?;
    let namespaces = format!("{},{}", team.namespace(), other.namespace());
    let options = Options { extra: vec!["--watch-namespaces".into(), namespaces], ..Options::default() };
    let agent = Agent::start(&team, &options)?;
    agent.await_watch_state("HTTPRoute", other.namespace(), "watching")?;
    agent.await_status(PORT, "one.test", ABSENT)?;
    let denied = team.denied()?;
    ensure!(denied.is_empty(), "{denied:#?}");
    Ok(())
}
