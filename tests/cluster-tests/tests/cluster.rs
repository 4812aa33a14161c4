//! The agent against a real API server, as an account with Roles only.
//!
//! Needs the test cluster (`cargo xtask cluster up`) and root; without them every test fails and says so.

#[path = "cluster/bed.rs"]
mod bed;

#[path = "cluster/access.rs"]
mod access;
#[path = "cluster/acknowledge.rs"]
mod acknowledge;
#[path = "cluster/lease.rs"]
mod lease;
#[path = "cluster/restart.rs"]
mod restart;
#[path = "cluster/service.rs"]
mod service;
#[path = "cluster/status.rs"]
mod status;
#[path = "cluster/watch.rs"]
mod watch;
