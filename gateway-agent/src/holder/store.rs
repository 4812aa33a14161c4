//! The descriptors that are held, and the answers to the worker's requests.
//!
//! **Invariant:** no I/O but the closing of descriptors that are dropped.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::protocol::{DESCRIPTORS_MAX, Reply, Request};

#[derive(Debug, Default)]
pub(super) struct Store {
    held: BTreeMap<String, OwnedFd>,
}

impl Store {
    /// The answer, and the descriptor to send with it; `None` for a request that makes no sense.
    pub(super) fn answer(
        &mut self,
        request: Request,
        descriptor: Option<OwnedFd>,
        restarts: u32,
    ) -> Option<(Reply, Option<BorrowedFd<'_>>)> {
        match (request, descriptor) {
            (Request::Put(name), Some(descriptor)) => Some((self.put(name, descriptor), None)),
            (Request::Remove(name), None) => {
                self.held.remove(&name);
                Some((Reply::Done, None))
            }
            (Request::Take(index), None) => {
                let held = usize::try_from(index).ok().and_then(|index| self.held.iter().nth(index));
                Some(held.map_or((Reply::End, None), |(name, descriptor)| {
                    (Reply::Held(name.clone()), Some(descriptor.as_fd()))
                }))
            }
            (Request::Restarts, None) => Some((Reply::Restarts(restarts), None)),
            (Request::Put(_), None)
            | (Request::Remove(_) | Request::Take(_) | Request::Restarts, Some(_)) => None,
        }
    }

    fn put(&mut self, name: String, descriptor: OwnedFd) -> Reply {
        if self.held.len() >= DESCRIPTORS_MAX && !self.held.contains_key(&name) {
            return Reply::Full;
        }
        self.held.insert(name, descriptor);
        Reply::Done
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;

    use super::Store;
    use crate::holder::protocol::{DESCRIPTORS_MAX, Reply, Request};

    fn descriptor() -> OwnedFd {
        File::open("/dev/null").unwrap().into()
    }

    fn put(store: &mut Store, name: String) -> Reply {
        store.answer(Request::Put(name), Some(descriptor()), 0).unwrap().0
    }

    #[test]
    fn taking_does_not_give_away() {
        let mut store = Store::default();
        assert_eq!(put(&mut store, "map/B".into()), Reply::Done);
        assert_eq!(put(&mut store, "map/A".into()), Reply::Done);
        for _ in 0..2 {
            let (reply, descriptor) = store.answer(Request::Take(0), None, 0).unwrap();
            assert_eq!((reply, descriptor.is_some()), (Reply::Held("map/A".into()), true));
        }
        assert_eq!(store.answer(Request::Take(2), None, 0).unwrap().0, Reply::End);
        assert_eq!(store.answer(Request::Remove("map/A".into()), None, 0).unwrap().0, Reply::Done);
        assert_eq!(store.answer(Request::Take(1), None, 0).unwrap().0, Reply::End);
    }

    #[test]
    fn what_exceeds_the_bound_is_refused_and_replacing_is_not() {
        let mut store = Store::default();
        for index in 0..DESCRIPTORS_MAX {
            assert_eq!(put(&mut store, format!("map/{index}")), Reply::Done);
        }
        assert_eq!(put(&mut store, "map/more".into()), Reply::Full);
        assert_eq!(put(&mut store, "map/0".into()), Reply::Done);
    }

    #[test]
    fn request_that_makes_no_sense_has_no_answer() {
        let mut store = Store::default();
        assert!(store.answer(Request::Put("map/A".into()), None, 0).is_none());
        assert!(store.answer(Request::Take(0), Some(descriptor()), 0).is_none());
    }
}
