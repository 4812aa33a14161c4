//! What the allocator keeps for later goes back to the kernel.
//!
//! Reading thousands of objects takes many times the memory that they are kept in, in pieces between what stays. glibc gives
//! back what lies at the end of a heap by itself, and never what lies within.

use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// Objects after which it is worth while: they have passed through some megabytes.
const OBJECTS: usize = 1000;

/// As long as lists of thousands take to come in and be answered: what is free is left to that.
const PATIENCE: Duration = Duration::from_secs(5);

/// What has passed through memory since the last time that what was free was given back.
#[derive(Debug, Default)]
pub struct Passage {
    n_objects: usize,
    calm: Option<Pin<Box<Sleep>>>,
}

impl Passage {
    pub fn passed(&mut self, n_objects: usize) {
        self.n_objects += n_objects;
        if self.n_objects >= OBJECTS && self.calm.is_none() {
            self.calm = Some(Box::pin(sleep(PATIENCE)));
        }
    }

    /// Resolves when it is time to [`give_back`], once for what has passed until then. Cancellation-safe.
    pub async fn calm(&mut self) {
        match &mut self.calm {
            Some(sleep) => sleep.as_mut().await,
            None => pending().await,
        }
        *self = Self::default();
    }
}

/// Gives back what is free. Holds each heap's lock for about a millisecond per 10 MB, so not for a worker's thread.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called by any thread at any time; it touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::{OBJECTS, PATIENCE, Passage, give_back};

    #[tokio::test(start_paused = true)]
    async fn it_is_time_once_for_each_thousand_objects() {
        let mut passage = Passage::default();
        let soon = PATIENCE + Duration::from_secs(1);
        passage.passed(OBJECTS - 1);
        assert!(timeout(soon, passage.calm()).await.is_err());
        passage.passed(1);
        // What is given up by others in between is waited for still.
        assert!(timeout(PATIENCE / 2, passage.calm()).await.is_err());
        assert!(timeout(soon, passage.calm()).await.is_ok());
        assert!(timeout(soon, passage.calm()).await.is_err());
    }

    /// Pages of this process that are in memory.
    #[cfg(target_env = "gnu")]
    fn resident() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn free_memory_between_what_stays_is_given_back() {
        const N: usize = 64 * 1024;
        const BYTES: usize = 1024;
        let mut pieces: Vec<Option<Box<[u8]>>> = (0..N).map(|_| Some(vec![1; BYTES].into())).collect();
        // One of 64 stays, so that next to nothing is free at the end.
        for (index, piece) in pieces.iter_mut().enumerate() {
            if index % 64 != 63 {
                *piece = None;
            }
        }
        let before = resident();
        give_back();
        let given = before.saturating_sub(resident()) * 4096;
        // Half of it: other tests take memory meanwhile.
        assert!(given > N * BYTES / 2, "{given} bytes");
        assert_eq!(pieces.iter().flatten().count(), N / 64);
    }
}
