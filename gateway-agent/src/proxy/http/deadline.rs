//! How long a request and each try of it may take, where its route says so. Precise to the runtime's millisecond.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Which limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// `timeouts.request`.
    Request,
    /// `timeouts.backendRequest`.
    Try,
}

/// Costs nothing where no limit is set.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    request: Option<Instant>,
    one_try: Option<Instant>,
    /// Kept from one request to the next.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// `None`, or longer than a clock can tell: no limit.
    pub(super) fn set(&mut self, limit: Limit, after: Option<Duration>) {
        let at = after.and_then(|after| Instant::now().checked_add(after));
        match limit {
            Limit::Request => self.request = at,
            Limit::Try => self.one_try = at,
        }
        let Some((at, _)) = self.next() else { return };
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(at))),
        }
    }

    pub(super) fn clear(&mut self) {
        (self.request, self.one_try) = (None, None);
    }

    /// Ready once a limit is reached.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Limit> {
        let Some((_, limit)) = self.next() else { return Poll::Pending };
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().poll(cx).map(|()| limit),
            None => Poll::Pending,
        }
    }

    /// The one that is reached first; of two at once the request's, after which nothing is tried.
    fn next(&self) -> Option<(Instant, Limit)> {
        let request = self.request.map(|at| (at, Limit::Request));
        let one_try = self.one_try.map(|at| (at, Limit::Try));
        match (request, one_try) {
            (Some(request), Some(one_try)) => Some(if one_try.0 < request.0 { one_try } else { request }),
            (one, other) => one.or(other),
        }
    }
}
