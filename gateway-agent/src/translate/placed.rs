//! Matches of a route with their places among those of a hostname.

use super::hostname::Specificity;
use super::precedence::{MatchRank, Precedence};
use crate::snapshot::{HttpMatch, MatchOrder};
use crate::store::objects::Meta;

/// One match of one rule.
#[derive(Debug)]
pub(super) struct CompiledMatch {
    pub(super) rank: MatchRank,
    pub(super) rule: usize,
    pub(super) position: usize,
    pub(super) compiled: HttpMatch,
}

/// Every match, with its place at a host that it came to by a hostname of this specificity.
///
/// Lookup falls through to less specific hosts of the listener. Within one listener a less specific intersection always
/// stems from a less specific hostname, so that is the order of precedence.
pub(super) fn placed<'a>(
    matches: &'a [CompiledMatch],
    route: &'a Meta,
    original: Specificity,
) -> impl Iterator<Item = (MatchOrder, &'a HttpMatch)> {
    matches.iter().map(move |one| {
        let precedence = Precedence::new(original, one.rank, route, one.rule, one.position);
        (precedence.order(), &one.compiled)
    })
}
