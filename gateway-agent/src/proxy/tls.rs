//! TLS without termination: routing by the name in the ClientHello.

pub mod hello;
#[cfg(test)]
pub(crate) mod maker;
mod passthrough;

pub(super) use passthrough::serve;
