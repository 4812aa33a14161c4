//! Store to snapshot and conditions.
//!
//! **Invariant:** pure and total: no I/O, no clock, no failure. A bad object becomes a condition and, where the spec
//! says so, a 500.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::snapshot::Listener;
use crate::status::ObjectStatus;
use crate::store::Store;

/// What translation depends on beside the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub gateway_class_names: Vec<String>,
    pub controller_name: String,
    /// `--address`; empty: every address of the network namespace.
    pub addresses: Vec<IpAddr>,
    /// Addresses that the network namespace has now, loopback excluded, sorted.
    pub local_addresses: Vec<IpAddr>,
    /// TCP port of the admin server, which no listener can have.
    pub admin_port: u16,
    /// Ports that the TC path draws from.
    pub source_ports: RangeInclusive<u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// In key order, no key twice.
    pub listeners: Arc<[Arc<Listener>]>,
    /// One per object that has a status of ours, in kind, namespace, name order.
    pub statuses: Vec<ObjectStatus>,
}

pub fn translate(store: &Store, config: &Config) -> Translation {
    let _ = (store, config);
    Translation::default()
}
