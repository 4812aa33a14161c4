//! What workers tell each other of endpoints: which they leave out for failing, and which serve again, so that not each
//! of them has to find out by requests of its own that fail.
//!
//! Locked where a worker has something to say, and once a tick where something new was said: never per request. Judges
//! nothing; see [`super::pool`].

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// What is kept of what was said. Workers listen every tenth of a second; beyond so many endpoints in it the oldest words
/// are lost, and the others find out by themselves.
const WORDS_MAX: usize = 1024;

/// How an endpoint does, by one worker's experience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// Left out from then on.
    Fails,
    /// It was left out, and serves.
    Serves,
}

#[derive(Clone, Copy, Debug)]
struct Word {
    by: u32,
    endpoint: SocketAddr,
    says: Says,
    at: Instant,
}

/// Shared by all workers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Ejections(Arc<Board>);

#[derive(Debug, Default)]
struct Board {
    words: Mutex<VecDeque<Word>>,
    /// Ever, those that are lost included.
    n_said: AtomicU64,
    n_workers: AtomicU32,
}

/// One worker's part in it.
#[derive(Debug)]
pub(super) struct Voice {
    ejections: Ejections,
    by: u32,
    n_heard: Cell<u64>,
}

impl Ejections {
    pub(super) fn voice(&self) -> Voice {
        let by = self.0.n_workers.fetch_add(1, Ordering::Relaxed);
        Voice { ejections: self.clone(), by, n_heard: Cell::new(0) }
    }
}

impl Voice {
    pub(super) fn say(&self, endpoint: SocketAddr, says: Says, at: Instant) {
        let board = &self.ejections.0;
        let mut words = board.words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.len() == WORDS_MAX {
            words.pop_front();
        }
        words.push_back(Word { by: self.by, endpoint, says, at });
        // Within the lock, so that the number and the words belong together for whoever has it.
        board.n_said.fetch_add(1, Ordering::Release);
    }

    /// What others have said since this was last asked, in order.
    pub(super) fn hear(&self, mut take: impl FnMut(SocketAddr, Says, Instant)) {
        let board = &self.ejections.0;
        if board.n_said.load(Ordering::Acquire) == self.n_heard.get() {
            return;
        }
        let words = board.words.lock().unwrap_or_else(PoisonError::into_inner);
        let n_said = board.n_said.load(Ordering::Relaxed);
        let n_new = usize::try_from(n_said - self.n_heard.replace(n_said)).unwrap_or(usize::MAX);
        for word in words.iter().skip(words.len().saturating_sub(n_new)) {
            if word.by != self.by {
                take(word.endpoint, word.says, word.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::time::Instant;

    use super::{Ejections, Says, Voice, WORDS_MAX};

    fn heard(voice: &Voice) -> Vec<(u16, Says)> {
        let mut heard = Vec::new();
        voice.hear(|endpoint, says, _| heard.push((endpoint.port(), says)));
        heard
    }

    fn endpoint(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    #[test]
    fn each_worker_hears_the_others_once_and_in_order() {
        let ejections = Ejections::default();
        let (one, two) = (ejections.voice(), ejections.voice());
        one.say(endpoint(1), Says::Fails, Instant::now());
        two.say(endpoint(2), Says::Fails, Instant::now());
        one.say(endpoint(1), Says::Serves, Instant::now());
        assert_eq!(heard(&two), [(1, Says::Fails), (1, Says::Serves)]);
        assert_eq!(heard(&one), [(2, Says::Fails)]);
        assert!(heard(&one).is_empty() && heard(&two).is_empty());
    }

    #[test]
    fn beyond_the_bound_the_oldest_words_are_lost() {
        let ejections = Ejections::default();
        let (one, two) = (ejections.voice(), ejections.voice());
        for port in (0_u16..).take(WORDS_MAX + 2) {
            one.say(endpoint(port), Says::Fails, Instant::now());
        }
        let heard = heard(&two);
        assert_eq!((heard.len(), heard.first()), (WORDS_MAX, Some(&(2, Says::Fails))));
    }
}
