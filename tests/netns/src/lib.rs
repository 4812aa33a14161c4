//! Holds no code: the tests are in `tests/netns.rs`, one binary for all.
