use std::collections::BTreeSet;

use super::backoff::doubled;
use super::*;
use crate::status::names::{kind, reason};
use crate::status::write::Parents;
use crate::status::{Condition, ParentKind, Scope, ScopeStatus};
use crate::store::Store;
use crate::store::testing::with_spec;
use crate::translate::Config;

const SECOND: Duration = Duration::from_secs(1);

fn name(name: &str) -> ObjectName {
    ObjectName::new("default", name)
}

fn gateway() -> Parent {
    Parent { kind: ParentKind::Gateway, name: name("gw") }
}

fn target(route: &str) -> Target {
    Target { kind: "HTTPRoute", name: name(route) }
}

/// A route that is accepted by Gateway `gw`, and says so with `message`.
fn status(route: &str, generation: i64, message: &str) -> Arc<ObjectStatus> {
    let accepted = Condition::new(kind::ACCEPTED, true, reason::ACCEPTED, message);
    let scope = Scope::Parent { index: 0, parent: gateway(), section: None, port: None };
    let scopes = vec![ScopeStatus::new(scope, vec![accepted])];
    Arc::new(ObjectStatus::new("HTTPRoute", name(route), generation, scopes))
}

/// What the API server holds after `status` was written, or of a route without a status.
fn seen(version: u64, generation: i64, written: Option<&ObjectStatus>) -> Seen {
    use serde_json::json;
    let parents: Vec<serde_json::Value> = written
        .map(|status| {
            let condition = &status.scopes[0].conditions[0];
            json!({"parentRef": {"name": "gw"}, "controllerName": "c", "conditions": [{
                "type": condition.kind, "status": "True", "reason": condition.reason, "message": condition.message,
                "observedGeneration": status.observed_generation}]})
        })
        .into_iter()
        .collect();
    let object = json!({"metadata": {"generation": generation}, "spec": {"parentRefs": [{"name": "gw"}]},
        "status": {"parents": parents}});
    let digest = Digest::new("HTTPRoute", &name("r"), &object, "c");
    Seen { resource_version: version.to_string().as_str().into(), digest }
}

fn parents(is_ours: bool) -> Arc<Parents> {
    let class = if is_ours { "gateway-agent" } else { "other" };
    let spec = serde_json::json!({"gatewayClassName": class, "listeners": []});
    let mut store = Store::default();
    store.apply(&with_spec("Gateway", "gw", spec));
    Arc::new(Parents::new(&store, &Config::default()))
}

fn lease() -> Leading {
    Leading::Of(BTreeSet::from([("default".into(), "gateway-agent".into())]))
}

/// One that leads, and wants `statuses`.
fn schedule(statuses: &[&Arc<ObjectStatus>]) -> Schedule {
    let mut schedule = Schedule::new(1);
    schedule.leading(Duration::ZERO, lease());
    want(&mut schedule, Duration::ZERO, statuses);
    schedule
}

fn want(schedule: &mut Schedule, now: Duration, statuses: &[&Arc<ObjectStatus>]) {
    schedule.desired(now, statuses.iter().map(|status| (*status).clone()).collect(), parents(true));
}

fn observe(schedule: &mut Schedule, now: Duration, route: &str, seen: Seen) {
    schedule.observed(now, &target(route), seen, || Box::from(*b"{}"));
}

/// The names of all jobs that can start now.
fn started(schedule: &mut Schedule, now: Duration) -> Vec<Job> {
    std::iter::from_fn(|| schedule.next(now)).collect()
}

fn is_quiet(schedule: &mut Schedule, now: Duration) -> bool {
    schedule.next(now).is_none() && schedule.depth() == 0 && schedule.due().is_none()
}

#[test]
fn an_object_that_says_what_is_wanted_is_neither_read_nor_written() {
    let wanted = status("r", 1, "m");
    let mut schedule = schedule(&[&wanted]);
    // Wanted before it was observed: it would have to be read.
    observe(&mut schedule, Duration::ZERO, "r", seen(7, 1, Some(&wanted)));
    assert!(is_quiet(&mut schedule, Duration::ZERO));
}

#[test]
fn the_latest_wish_is_written_and_by_one_task_at_a_time() {
    let (first, second, third) = (status("r", 1, "1"), status("r", 1, "2"), status("r", 1, "3"));
    let mut schedule = schedule(&[&first]);
    want(&mut schedule, Duration::ZERO, &[&second]);
    let job = schedule.next(Duration::ZERO).expect("a job");
    assert_eq!(job.desired, second);
    want(&mut schedule, Duration::ZERO, &[&third]);
    assert!(schedule.next(Duration::ZERO).is_none());
    schedule.done(SECOND, &job, Done::Written(seen(8, 1, Some(&second))));
    assert_eq!(schedule.due(), Some(SECOND + SPACING));
    let job = schedule.next(SECOND + SPACING).expect("the next wish");
    assert_eq!(job.desired, third);
    schedule.done(2 * SECOND, &job, Done::Written(seen(9, 1, Some(&third))));
    assert!(is_quiet(&mut schedule, 9 * SECOND));
    assert_eq!(schedule.counts().writes, 2);
    assert_eq!(schedule.take_delays(), [2 * SECOND]);
}

#[test]
fn of_a_settled_object_nothing_is_kept_but_what_was_seen() {
    let (wanted, other) = (status("r", 1, "m"), status("s", 1, "m"));
    let mut schedule = schedule(&[&wanted, &other]);
    observe(&mut schedule, Duration::ZERO, "r", seen(7, 1, None));
    observe(&mut schedule, Duration::ZERO, "s", seen(8, 1, Some(&other)));
    let job = schedule.next(Duration::ZERO).expect("a job");
    schedule.done(SECOND, &job, Done::Written(seen(9, 1, Some(&wanted))));
    assert!(is_quiet(&mut schedule, SECOND));
    for route in ["r", "s"] {
        let entry = schedule.objects.get(&target(route)).expect("an entry");
        assert!(entry.seen.is_some() && entry.work().is_none(), "{entry:?}");
    }
}

#[test]
fn a_copy_from_the_watch_spares_the_read() {
    let mut schedule = schedule(&[]);
    observe(&mut schedule, Duration::ZERO, "r", seen(7, 1, None));
    want(&mut schedule, Duration::ZERO, &[&status("r", 1, "m")]);
    assert_eq!(schedule.next(Duration::ZERO).expect("a job").copy.as_deref(), Some(&b"{}"[..]));
}

#[test]
fn a_spec_that_is_newer_waits_for_its_status() {
    let (old, new) = (status("r", 1, "m"), status("r", 2, "m"));
    let mut schedule = schedule(&[&old]);
    observe(&mut schedule, Duration::ZERO, "r", seen(7, 1, Some(&old)));
    observe(&mut schedule, Duration::ZERO, "r", seen(8, 2, Some(&old)));
    assert!(is_quiet(&mut schedule, Duration::ZERO));
    want(&mut schedule, SECOND, &[&new]);
    let job = schedule.next(SECOND).expect("a job");
    assert!(job.copy.is_some());
}

#[test]
fn work_in_flight_is_bounded() {
    let statuses: Vec<_> = (0..20).map(|n| status(&format!("r{n:02}"), 1, "m")).collect();
    let mut schedule = schedule(&statuses.iter().collect::<Vec<_>>());
    let jobs = started(&mut schedule, Duration::ZERO);
    assert_eq!((jobs.len(), schedule.depth()), (MAX_IN_FLIGHT, 20));
    assert_eq!(schedule.due(), None);
    schedule.done(Duration::ZERO, &jobs[0], Done::Written(seen(7, 1, Some(&statuses[0]))));
    assert_eq!(started(&mut schedule, Duration::ZERO).len(), 1);
}

// O55
#[test]
fn only_the_leader_has_work_and_who_gains_the_lease_goes_through_everything() {
    let (settled, unsettled) = (status("a", 1, "m"), status("b", 1, "m"));
    let mut schedule = schedule(&[&settled, &unsettled]);
    schedule.leading(Duration::ZERO, Leading::Nothing);
    observe(&mut schedule, Duration::ZERO, "a", seen(7, 1, Some(&settled)));
    observe(&mut schedule, Duration::ZERO, "b", seen(7, 1, None));
    assert!(is_quiet(&mut schedule, Duration::ZERO));
    schedule.leading(SECOND, lease());
    let jobs = started(&mut schedule, SECOND);
    assert_eq!(jobs.iter().map(|job| &job.target).collect::<Vec<_>>(), [&target("b")]);
    // It asks again before it writes.
    assert_eq!((jobs[0].standing(&gateway()), jobs[0].leading()), (Standing::Ours, &lease()));
    schedule.leading(SECOND, Leading::Nothing);
    schedule.done(SECOND, &jobs[0], Done::NotLeading);
    assert!(is_quiet(&mut schedule, 2 * SECOND));
    schedule.leading(3 * SECOND, lease());
    assert_eq!(started(&mut schedule, 3 * SECOND).len(), 1);
}

#[test]
fn a_lease_that_comes_while_a_write_is_under_way_has_its_entry_written_too() {
    let there = Parent { kind: ParentKind::Gateway, name: ObjectName::new("other", "gw") };
    let mut wanted = (*status("r", 1, "m")).clone();
    let accepted = wanted.scopes[0].conditions.to_vec();
    let scope = Scope::Parent { index: 1, parent: there.clone(), section: None, port: None };
    wanted.scopes = [wanted.scopes[0].clone(), ScopeStatus::new(scope, accepted)].into();
    let wanted = Arc::new(wanted);
    let mut store = Store::default();
    for gateway in ["gw", "other/gw"] {
        let spec = serde_json::json!({"gatewayClassName": "gateway-agent", "listeners": []});
        store.apply(&with_spec("Gateway", gateway, spec));
    }
    let parents = Arc::new(Parents::new(&store, &Config::default()));
    let mut schedule = Schedule::new(1);
    schedule.leading(Duration::ZERO, lease());
    schedule.desired(Duration::ZERO, [wanted.clone()].into_iter().collect(), parents);
    observe(&mut schedule, Duration::ZERO, "r", seen(7, 1, None));
    let job = schedule.next(Duration::ZERO).expect("a job");
    assert_ne!(job.standing(&there), Standing::Ours);

    let both = ["default", "other"].map(|namespace| (namespace.into(), "gateway-agent".into()));
    schedule.leading(Duration::ZERO, Leading::Of(both.into()));
    schedule.done(SECOND, &job, Done::Written(seen(8, 1, Some(&wanted))));
    let job = schedule.next(SECOND + SPACING).expect("the other entry");
    assert_eq!(job.standing(&there), Standing::Ours);
}

#[test]
fn failures_are_forgotten_once_another_has_written_it() {
    let wanted = status("r", 1, "m");
    let mut schedule = schedule(&[&wanted]);
    observe(&mut schedule, Duration::ZERO, "r", seen(7, 1, None));
    let job = schedule.next(Duration::ZERO).expect("a job");
    schedule.done(Duration::ZERO, &job, Done::Failed);
    let due = schedule.due().expect("again");
    observe(&mut schedule, due, "r", seen(8, 1, Some(&wanted)));
    assert!(is_quiet(&mut schedule, due));
    assert!(schedule.objects.get(&target("r")).expect("known").work().is_none());
}

// O47
#[test]
fn conflicts_back_off_and_count() {
    let mut schedule = schedule(&[&status("r", 1, "m")]);
    let mut now = Duration::ZERO;
    for n in 1..=10 {
        let job = schedule.next(now).expect("a job");
        schedule.done(now, &job, Done::Conflict);
        let due = schedule.due().expect("again");
        let most = doubled(CONFLICT.0, n - 1, CONFLICT.1);
        assert!(due >= now + most / 2 && due <= now + most, "{n}: {due:?}");
        assert!(schedule.next(now).is_none());
        now = due;
    }
    assert_eq!((schedule.counts().conflicts, schedule.counts().writes), (10, 0));
}

#[test]
fn a_failure_delays_its_object_alone() {
    let mut schedule = schedule(&[&status("a", 1, "m"), &status("b", 1, "m")]);
    let job = schedule.next(Duration::ZERO).expect("a job");
    schedule.done(Duration::ZERO, &job, Done::Failed);
    let next = started(&mut schedule, Duration::ZERO);
    assert_eq!(next.iter().map(|job| &job.target).collect::<Vec<_>>(), [&target("b")]);
    assert_eq!(schedule.counts().failures, 1);
}

// O52
#[test]
fn an_api_server_that_is_away_pauses_all() {
    let mut schedule = schedule(&[&status("a", 1, "m"), &status("b", 1, "m")]);
    let job = schedule.next(Duration::ZERO).expect("a job");
    schedule.done(Duration::ZERO, &job, Done::Unreachable(Some(7 * SECOND)));
    assert!(schedule.next(6 * SECOND).is_none());
    assert_eq!(schedule.due(), Some(7 * SECOND));
    assert_eq!(started(&mut schedule, 7 * SECOND).len(), 2);
}

#[test]
fn alterations_are_put_right_at_once_and_a_fight_slows_down() {
    let wanted = status("r", 1, "m");
    let mut schedule = schedule(&[&wanted]);
    observe(&mut schedule, Duration::ZERO, "r", seen(1, 1, Some(&wanted)));
    let (mut now, mut version, mut delays) = (SECOND, 1, Vec::new());
    for _ in 0..12 {
        version += 2;
        observe(&mut schedule, now, "r", seen(version - 1, 1, Some(&status("r", 1, "other"))));
        let due = schedule.due().expect("to be put right").max(now);
        delays.push((due - now).as_secs());
        now = due;
        let job = schedule.next(now).expect("a job");
        schedule.done(now, &job, Done::Written(seen(version, 1, Some(&wanted))));
    }
    assert_eq!(delays, [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    assert_eq!((schedule.counts().alterations, schedule.counts().fights), (12, 1));
    assert_eq!(schedule.take_fights(), [target("r")]);
}

#[test]
fn an_event_from_before_our_write_is_no_alteration() {
    let (old, wanted) = (status("r", 1, "old"), status("r", 1, "m"));
    let mut schedule = schedule(&[&wanted]);
    let job = schedule.next(Duration::ZERO).expect("a job");
    schedule.done(Duration::ZERO, &job, Done::Written(seen(9, 1, Some(&wanted))));
    for version in [8, 9] {
        observe(
            &mut schedule,
            SECOND,
            "r",
            seen(version, 1, Some(if version == 8 { &old } else { &wanted })),
        );
    }
    assert!(is_quiet(&mut schedule, SECOND));
    assert_eq!(schedule.counts().alterations, 0);
}

#[test]
fn what_found_no_room_is_not_tried_until_something_changes() {
    let wanted = status("r", 1, "m");
    let mut schedule = schedule(&[&wanted]);
    let job = schedule.next(Duration::ZERO).expect("a job");
    schedule.done(Duration::ZERO, &job, Done::Same(seen(7, 1, None)));
    assert!(is_quiet(&mut schedule, SECOND));
    let changed = status("r", 1, "changed");
    want(&mut schedule, SECOND, &[&changed]);
    assert_eq!(started(&mut schedule, SECOND).len(), 1);
}

#[test]
fn what_was_seen_without_the_lease_is_looked_at_again_with_it() {
    let wanted = status("r", 1, "m");
    let mut schedule = schedule(&[&wanted]);
    let job = schedule.next(Duration::ZERO).expect("a job");
    schedule.leading(Duration::ZERO, Leading::Nothing);
    schedule.done(Duration::ZERO, &job, Done::Same(seen(7, 1, None)));
    assert!(is_quiet(&mut schedule, SECOND));
    schedule.leading(SECOND, lease());
    assert_eq!(started(&mut schedule, SECOND).len(), 1);
}

#[test]
fn a_gateway_that_went_to_another_class_takes_our_entry_with_it_once() {
    let wanted = status("r", 1, "m");
    let mut schedule = schedule(&[&wanted]);
    observe(&mut schedule, Duration::ZERO, "r", seen(7, 1, Some(&wanted)));
    assert!(is_quiet(&mut schedule, Duration::ZERO));
    let none = Arc::new(ObjectStatus { scopes: [].into(), ..(*wanted).clone() });
    schedule.desired(SECOND, [none].into_iter().collect(), parents(false));
    let job = schedule.next(SECOND).expect("a job");
    assert_eq!(job.standing(&gateway()), Standing::Gone);
    schedule.done(SECOND, &job, Done::Written(seen(8, 1, None)));
    // Whoever has the Gateway now carries the same controllerName.
    observe(&mut schedule, 2 * SECOND, "r", seen(9, 1, Some(&wanted)));
    assert!(is_quiet(&mut schedule, 9 * SECOND));
}

#[test]
fn what_is_gone_is_forgotten() {
    let (a, b) = (status("a", 1, "m"), status("b", 1, "m"));
    let mut schedule = schedule(&[&a, &b]);
    want(&mut schedule, Duration::ZERO, &[&b]);
    assert_eq!(schedule.depth(), 1);
    schedule.retain("HTTPRoute", Some("default"), |_| false);
    schedule.retain("Gateway", None, |_| false);
    assert!(is_quiet(&mut schedule, Duration::ZERO));
    assert!(schedule.objects.targets().is_empty());
}

#[test]
fn a_job_that_comes_back_for_an_object_that_is_gone_changes_nothing() {
    let wanted = status("r", 1, "m");
    let mut schedule = schedule(&[&wanted]);
    let job = schedule.next(Duration::ZERO).expect("a job");
    schedule.forget(&target("r"));
    schedule.done(Duration::ZERO, &job, Done::NotFound);
    assert!(is_quiet(&mut schedule, 9 * SECOND));
}
