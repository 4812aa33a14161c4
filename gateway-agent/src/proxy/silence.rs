//! The end of a relay in which nothing moves although something should.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Watches one relay.
pub(super) struct Silence {
    timer: Option<Pin<Box<Sleep>>>,
    last: Instant,
    moved: u64,
}

impl Silence {
    /// `moved`: bytes so far.
    pub(super) fn new(moved: u64) -> Self {
        Self { timer: None, last: Instant::now(), moved }
    }

    /// Ready when nothing has moved for `wait`, during which silence counts; `None`: it may last for ever now.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, wait: Option<Duration>, moved: u64) -> Poll<()> {
        let now = Instant::now();
        if self.moved != moved || wait.is_none() {
            (self.moved, self.last) = (moved, now);
        }
        let Some(wait) = wait else { return Poll::Pending };
        let deadline = self.last + wait;
        if deadline <= now {
            return Poll::Ready(());
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        // Moved only where it would fire too late or has fired: bytes cost no timer operation.
        loop {
            if timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            ready!(timer.as_mut().poll(cx));
            if deadline <= Instant::now() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }
}
