//! What the agent is to reach, and how to read the figures.

use super::candidates::{AGENT, TRAEFIK};
use super::{ACCEPTED, AT_REST, COST, MEMORY, VISIBLE, WRITES, WRONG};
use crate::bench::figure::Figure;
use crate::bench::report::{Report, Target};

/// Most of the targets are for this many routes.
const MANY: usize = 3000;

pub(super) fn judge(report: &mut Report) {
    let mut targets = Vec::new();
    let of_agent = |what: &str, routes: usize| {
        let mut figures = report.figures.iter();
        figures.find(|figure| figure.candidate == AGENT && figure.what == what && figure.routes == routes)
    };
    let mut at_most = |what: &str, routes: usize, value: Option<f64>, bound: f64| {
        if let Some(value) = value {
            targets.push(Target::at_most(&format!("{what}, {routes} routes"), value, bound));
        }
    };
    let p99 = |figure: &Figure| figure.percentile(99);
    let visible = of_agent(VISIBLE, MANY).map(p99);
    at_most("event to first 200, p99, ms", MANY, visible, 5.0);
    let growth = visible.zip(of_agent(VISIBLE, 10).map(p99)).map(|(many, few)| many - few);
    at_most("the same, more than with 10 routes, ms", MANY, growth, 2.0);
    let max = |what: &str, routes: usize| of_agent(what, routes).map(Figure::max);
    at_most(COST, MANY, max(COST, MANY), 2.0);
    at_most(WRITES, MANY, max(WRITES, MANY), 1.0);
    at_most("all Accepted, s", MANY, max(ACCEPTED, MANY), 20.0);
    at_most("RSS, MB", 5000, max(MEMORY, 5000), 30.0);
    at_most("CPU at rest, %", 5000, max(AT_REST, 5000), 1.0);
    for figure in report.figures.iter().filter(|figure| figure.candidate == AGENT && figure.what == WRONG) {
        at_most(WRONG, figure.routes, Some(figure.max()), 0.0);
    }
    report.targets = targets;
}

pub(super) fn notes() -> Vec<String> {
    let traefik = crate::bench::wheel::TRAEFIK.version;
    vec![
        "The event's time is that of the same event on a watch of this program, opened like the gateways' own: to \
         its reader it comes at the same moment, within a fraction of a millisecond. Each replica is asked every half \
         millisecond on a connection of its own; a change counts when the last replica serves it."
            .into(),
        "A wrong answer: an error, another route's backend, or a version of the route that is older than one which the \
         replica has served. A late one is not wrong."
            .into(),
        "CPU of a change is measured without requests, one change after the other, each until both replicas serve it; \
         what the replicas take at rest is not in it. RSS is the sum over all processes of a pod."
            .into(),
        format!(
            "{TRAEFIK} {traefik} runs with its defaults: it applies changes at most every 2 s \
             (`providersThrottleDuration`), and asks the API server at most 50 times a second."
        ),
    ]
}
