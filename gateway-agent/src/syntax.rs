//! HTTP syntax that configuration and requests must be read by alike.
//!
//! **Invariant:** pure, and knows neither configuration nor connections. The syntax of whole messages is
//! [`crate::proxy::h1`]'s.

pub mod field;
pub mod path;
