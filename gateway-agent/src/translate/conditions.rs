//! Verdicts on objects and the conditions made of them.

use crate::status::names::{kind, reason};
use crate::status::{Condition, gateway_accepted};

/// Why something is not as the user wants it: a reason of the spec and what the user can check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Problem {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// What is said of a route whatever it attaches to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RouteVerdict {
    /// No rule can be served: not Accepted anywhere.
    pub(super) unusable: Option<Problem>,
    /// Some rules are not served as written.
    pub(super) partial: Option<String>,
    pub(super) unresolved: Option<Problem>,
    /// Said beside Accepted=True.
    pub(super) note: Option<String>,
}

/// Messages of one condition are joined up to this many; a route with hundreds of bad references would otherwise
/// come near the 32,768 characters that the API allows.
const MESSAGES_SHOWN: usize = 4;

/// One problem out of several: the first gives the reason.
pub(super) fn merge(problems: Vec<Problem>) -> Option<Problem> {
    let reason = problems.first()?.reason;
    let messages: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
    Some(Problem { reason, message: join_messages(messages) })
}

pub(super) fn join_messages(mut messages: Vec<String>) -> String {
    let mut seen = std::collections::HashSet::new();
    messages.retain(|message| seen.insert(message.clone()));
    let more = messages.len().saturating_sub(MESSAGES_SHOWN);
    messages.truncate(MESSAGES_SHOWN);
    let mut text = messages.join("; ");
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

/// The condition, true with `good` as its reason where there is no problem.
pub(super) fn condition(
    kind: &'static str,
    good: &'static str,
    good_message: impl Into<String>,
    problem: Option<&Problem>,
) -> Condition {
    match problem {
        None => Condition::new(kind, true, good, good_message),
        Some(problem) => Condition::new(kind, false, problem.reason, problem.message.clone()),
    }
}

/// A route's conditions for one parent.
pub(super) fn parent(accepted: &Result<String, Problem>, verdict: &RouteVerdict) -> Vec<Condition> {
    let message = accepted.as_ref().cloned().unwrap_or_default();
    let mut conditions = vec![
        condition(kind::ACCEPTED, reason::ACCEPTED, message, accepted.as_ref().err()),
        condition(
            kind::RESOLVED_REFS,
            reason::RESOLVED_REFS,
            "all references resolve",
            verdict.unresolved.as_ref(),
        ),
    ];
    if let (Ok(_), Some(partial)) = (accepted, &verdict.partial) {
        conditions.push(Condition::new(
            kind::PARTIALLY_INVALID,
            true,
            reason::UNSUPPORTED_VALUE,
            partial.clone(),
        ));
    }
    conditions
}

/// A Gateway's own condition `Accepted`.
pub(super) fn gateway(
    problem: Option<&Problem>,
    n_listeners: usize,
    refused: &[&str],
    note: &str,
) -> Condition {
    match problem {
        Some(problem) => Condition::new(kind::ACCEPTED, false, problem.reason, problem.message.clone()),
        None => gateway_accepted(n_listeners, refused, note),
    }
}
