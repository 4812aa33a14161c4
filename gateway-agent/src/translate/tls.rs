//! TLS passthrough: of the routes for one server name the one that serves.

use std::cmp::Reverse;

use super::hostname::Specificity;
use super::stream::CompiledStream;

/// The route with the most specific hostname of its own, then the oldest, then by name.
pub(super) fn winner<'a>(
    routes: impl Iterator<Item = (&'a CompiledStream, Specificity)>,
) -> Option<&'a CompiledStream> {
    let winner = routes.min_by(|(one, one_rank), (other, other_rank)| {
        let ranks = Reverse(one_rank).cmp(&Reverse(other_rank));
        ranks.then_with(|| one.route.meta.seniority().cmp(&other.route.meta.seniority()))
    });
    winner.map(|(route, _)| route)
}
