//! The API away: at the start, later, and both.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cluster_tests::team::Way;
use cluster_tests::{Agent, Fault, Faults, Options, Team, eventually};
use serde_json::json;

use crate::bed::{ABSENT, HERE, PORT, gateway, route};

/// For the agent the API server is away.
fn outage(faults: &Faults) -> Result<Fault> {
    let outage = faults.add(json!({}), json!({"fault": "drop"}))?;
    faults.watches(json!({}), "cut")?;
    Ok(outage)
}

// O52: the API goes away and comes back under a running agent.
#[test]
fn what_was_known_keeps_serving_while_the_api_is_away() -> Result<()> {
    let team = Team::new("restart")?;
    gateway(&team)?;
    route(&team, "one", "one.test")?;
    let agent = Agent::start(&team, &Options { way: Way::Faults, ..Options::default() })?;
    agent.await_status(PORT, "one.test", HERE)?;
    // One that is being opened would be cut by nobody.
    agent.await_watch_state("HTTPRoute", team.namespace(), "watching")?;
    let outage = outage(&Faults::of(&team)?)?;
    eventually("the outage is seen", || {
        let reachable = agent.metrics()?.sum("gateway_agent_api_reachable", &[]);
        ensure!(reachable == 0.0, "not yet");
        Ok(())
    })?;
    team.delete("httproute", "one")?;
    route(&team, "two", "two.test")?;
    ensure!(agent.status(PORT, "one.test") == HERE, "{}", agent.log());
    ensure!(agent.is_ready(), "{}", agent.log());
    outage.end()?;
    agent.await_status(PORT, "one.test", ABSENT)?;
    agent.await_status(PORT, "two.test", HERE)
}

// O52: connection refused at the start: it waits, and then works.
#[test]
fn an_agent_without_state_waits_for_the_api() -> Result<()> {
    let team = Team::new("restart")?;
    gateway(&team)?;
    let faults = Faults::of(&team)?;
    let outage = outage(&faults)?;
    let agent = Agent::launch(&team, &Options { way: Way::Faults, ..Options::default() })?;
    eventually("it has tried", || {
        ensure!(outage.hits()? > 3, "not yet");
        Ok(())
    })?;
    ensure!(!agent.is_ready());
    agent.process().check_running()?;
    outage.end()?;
    agent.wait_ready()?;
    agent.await_status(PORT, "one.test", ABSENT)
}

#[test]
fn an_agent_with_state_serves_before_the_api_answers() -> Result<()> {
    let team = Team::new("restart")?;
    gateway(&team)?;
    route(&team, "one", "one.test")?;
    route(&team, "two", "two.test")?;
    let state = team.folder().join("state");
    let options = Options { way: Way::Faults, state_dir: Some(state.clone()), ..Options::default() };
    let agent = Agent::start(&team, &options)?;
    agent.await_status(PORT, "two.test", HERE)?;
    eventually("the state is written", || {
        let text = std::fs::read_to_string(state.join("objects"))?;
        ensure!(text.contains("two.test") && text.contains("one.test"), "not yet");
        Ok(())
    })?;
    agent.kill()?;

    let outage = outage(&Faults::of(&team)?)?;
    team.delete("httproute", "one")?;
    let started = Instant::now();
    let agent = Agent::start(&team, &options)?;
    agent.await_status(PORT, "one.test", HERE)?;
    // The target is 2 s; a machine that also compiles gets more.
    ensure!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    agent.await_status(PORT, "two.test", HERE)?;
    ensure!(agent.is_ready());

    outage.end()?;
    agent.await_status(PORT, "one.test", ABSENT)?;
    ensure!(agent.status(PORT, "two.test") == HERE, "{}", agent.log());
    Ok(())
}

#[test]
fn a_damaged_state_is_said_and_not_used() -> Result<()> {
    let team = Team::new("restart")?;
    gateway(&team)?;
    let state = team.folder().join("state");
    std::fs::create_dir(&state)?;
    std::fs::write(state.join("objects"), "gateway-agent state 0\nend 0\n")?;
    let options = Options { state_dir: Some(state.clone()), ..Options::default() };
    let agent = Agent::start(&team, &options)?;
    agent.await_status(PORT, "one.test", ABSENT)?;
    ensure!(agent.log().contains("it is not of this version of the agent"), "{}", agent.log());
    eventually("the state is replaced", || {
        let text = std::fs::read_to_string(state.join("objects"))?;
        ensure!(text.contains("\nGateway "), "not yet");
        Ok(())
    })
}
