//! Loading the object under test, running packets through it, and building and checking packets.
//!
//! No expectations: those are in the tests.

pub mod frame;
pub mod object;
