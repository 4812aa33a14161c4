//! gateway-agent: a Gateway API implementation that needs rights in its own namespaces only.
//!
//! Reading order, which is the flow of configuration: [`manifests`] or [`cluster`] (I/O in) fills the [`store`];
//! [`translate`] (pure) makes of it a [`snapshot`] and conditions; [`proxy`] and [`ebpf`] serve the
//! snapshot and report what they applied; [`status`] joins conditions and reports for the user.
//! [`app`] wires it. ARCHITECTURE.md says what each part may not import.

pub mod access_log;
pub mod addresses;
pub mod admin;
pub mod api;
pub mod app;
pub mod args;
pub mod certificate;
pub mod cluster;
pub mod control;
pub mod drain;
pub mod ebpf;
pub mod features;
pub mod holder;
mod interner;
pub mod manifests;
pub mod memory;
pub mod metrics;
pub mod provision;
pub mod proxy;
mod random;
pub mod snapshot;
pub mod status;
pub mod store;
pub mod syntax;
pub mod telemetry;
pub mod translate;
