//! Exactly one writer.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cluster_tests::team::Way;
use cluster_tests::{Agent, Faults, Options, Team, eventually};
use serde_json::json;

use crate::bed::{HERE, PORT, gateway, route};

/// Long enough for a machine that also compiles to renew it in time.
const LEASE: Duration = Duration::from_secs(30);

fn options(way: Way) -> Options {
    let extra = vec!["--lease-duration".into(), LEASE.as_secs().to_string()];
    Options { way, extra, ..Options::default() }
}

fn await_lead(agent: &Agent, team: &Team) -> Result<()> {
    eventually("it leads", || {
        ensure!(agent.leads(team.namespace())?, "not yet\n{}", agent.log());
        Ok(())
    })
}

// O55
#[test]
fn of_two_agents_one_writes_and_the_other_takes_over() -> Result<()> {
    let team = Team::new("lease")?;
    let first = Agent::start(&team, &options(Way::Direct))?;
    await_lead(&first, &team)?;
    let second = Agent::start(&team, &options(Way::Direct))?;
    ensure!(!second.leads(team.namespace())?);

    // Killed: after the lease has run out, and not before.
    let killed = Instant::now();
    first.kill()?;
    await_lead(&second, &team)?;
    ensure!(killed.elapsed() >= LEASE - LEASE / 5, "{:?}", killed.elapsed());

    // Ended in good form: at once.
    let third = Agent::start(&team, &options(Way::Direct))?;
    ensure!(!third.leads(team.namespace())?);
    let ended = Instant::now();
    second.terminate()?;
    await_lead(&third, &team)?;
    ensure!(ended.elapsed() < LEASE, "{:?}", ended.elapsed());
    Ok(())
}

// O55: who cannot renew stops writing in time and goes on serving; and competes again.
#[test]
fn an_agent_without_the_right_to_the_lease_serves_and_leads_again_later() -> Result<()> {
    let team = Team::new("lease")?;
    gateway(&team)?;
    route(&team, "one", "one.test")?;
    let agent = Agent::start(&team, &options(Way::Faults))?;
    await_lead(&agent, &team)?;
    let faults = Faults::of(&team)?;
    let denied = faults
        .add(json!({"resource": "leases"}), json!({"fault": "refuse", "code": 403, "reason": "Forbidden"}))?;
    eventually("it gives up", || {
        ensure!(!agent.leads(team.namespace())?, "not yet");
        Ok(())
    })?;
    ensure!(agent.status(PORT, "one.test") == HERE && agent.is_ready(), "{}", agent.log());
    route(&team, "two", "two.test")?;
    agent.await_status(PORT, "two.test", HERE)?;
    denied.end()?;
    await_lead(&agent, &team)
}

// O55: the renewal neither arrives nor fails.
#[test]
fn an_agent_whose_renewal_hangs_gives_up_before_another_leads() -> Result<()> {
    let team = Team::new("lease")?;
    let first = Agent::start(&team, &options(Way::Faults))?;
    await_lead(&first, &team)?;
    let second = Agent::start(&team, &options(Way::Direct))?;
    let faults = Faults::of(&team)?;
    // The second one does not come by the proxy.
    let _hang = faults.add(json!({"resource": "leases"}), json!({"fault": "hang"}))?;
    eventually("the other leads", || {
        let leads = second.leads(team.namespace())?;
        ensure!(!(leads && first.leads(team.namespace())?), "two leaders");
        ensure!(leads, "not yet");
        Ok(())
    })?;
    ensure!(!first.leads(team.namespace())?, "two leaders");
    Ok(())
}

#[test]
fn each_watched_namespace_has_a_leader_of_its_own() -> Result<()> {
    let (one, two) = (Team::new("lease")?, Team::new("lease")?);
    two.grant(&one)?;
    let namespaces = format!("{},{}", one.namespace(), two.namespace());
    let home = Agent::start(&two, &options(Way::Direct))?;
    await_lead(&home, &two)?;
    let mut both = options(Way::Direct);
    both.extra.extend(["--watch-namespaces".into(), namespaces]);
    let both = Agent::start(&one, &both)?;
    await_lead(&both, &one)?;
    eventually("the lease there is another's", || {
        ensure!(!both.leads(two.namespace())? && home.leads(two.namespace())?);
        Ok(())
    })
}
