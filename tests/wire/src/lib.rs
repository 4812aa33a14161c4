//! The agent's parsers of network bytes and its route tables, without the rest of the agent.
//!
//! They are the agent's own source files, compiled here once more: with the few crates that pure code needs they build
//! in seconds, with coverage for the fuzzer and optimised for the instruction counts, where the whole agent would take
//! many minutes. It holds no copy and changes nothing in them.
//!
//! [`reading`] reads connections with them. [`targets`] states what must hold for any bytes; `cargo xtask fuzz` looks for bytes for which it does not, and the
//! test `corpus` replays those that were found. The test `differential` reads requests with another implementation.
//! [`paths`] are what `cargo xtask instructions` counts.

pub mod paths;
pub mod reading;
pub mod targets;

#[path = "../../../gateway-agent/src"]
#[expect(dead_code, reason = "what the rest of the agent uses of these modules")]
mod agent {
    pub mod snapshot;
    pub mod syntax;

    pub mod proxy {
        pub mod flow;
        pub mod h1;
        pub mod limits;
        pub mod message;
        pub mod proxy_protocol;

        pub mod tls {
            pub mod hello;
            #[cfg(test)]
            mod maker;
        }
    }
}

/// In the place of the agent's module, which brings in TLS: tables hold certificates and never look into them.
pub mod certificate {
    #[derive(Debug, PartialEq, Eq, Hash)]
    pub struct Authorities;

    #[derive(Debug, PartialEq, Eq, Hash)]
    pub struct Certificate;
}

pub use agent::{proxy, snapshot, syntax};
