//! What the tests of `deploy/` share: the running test cluster, a team in a namespace of its own, traffic from outside
//! of the nodes, and what the API server's audit log says.
//!
//! It starts no cluster and builds no image: `cargo xtask cluster up`, `cargo xtask image`, and `cargo xtask cluster load
//! --conformance target/image/gateway-agent.tar` come first. A missing one fails loudly.

pub mod audit;
mod cluster;
mod load;
pub mod manifests;
mod team;
pub mod yaml;

pub use self::cluster::{Cluster, bases, kustomize};
pub use self::load::{Load, Tally};
pub use self::team::{PodSecurity, Team, condition};
