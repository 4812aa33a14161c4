//! Store to snapshot and conditions.
//!
//! Gateways and ListenerSets give listeners, the oldest Gateway first ([`gateway`], [`listener_set`], [`listener`], in
//! all [`topology`]). Routes are compiled once each ([`http`], [`stream`], [`backend`]) and attached
//! ([`route`]). What is attached to a listener becomes tables by hostname ([`tables`]), and what shares an address
//! and port one entry of the snapshot ([`entries`]). [`Translator`] keeps all this and makes again what a change concerns.
//!
//! **Invariant:** pure and total: no I/O, no clock, no failure. A bad object becomes a condition and, where the spec
//! says so, a 500. Does not decide Programmed: that takes the data paths' word ([`crate::status::join`]).

mod announced;
mod authority;
mod backend;
mod certificates;
mod conditions;
mod config;
mod conflict;
mod entries;
mod frontend;
mod gateway;
mod grant;
mod hostname;
mod http;
mod http_filters;
mod inputs;
mod l4;
mod listener;
mod listener_set;
mod overlap;
mod parameters;
mod parsed;
mod policy;
mod precedence;
mod provision;
mod route;
mod routes;
mod statuses;
mod stream;
mod tables;
#[cfg(test)]
mod tests;
mod tls;
mod topology;
mod translator;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use self::config::{Config, PodIdentity, Watched};
pub use self::parameters::tables as parameters_tables;
pub use self::translator::{Gone, Translator, Work};
use crate::provision::Wanted;
use crate::snapshot::Listener;
use crate::status::StatusList;
use crate::store::Store;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// In key order, no key twice.
    pub listeners: Arc<[Arc<Listener>]>,
    /// One per object that has a status of ours.
    pub statuses: StatusList,
    /// What is to be written for Gateways beside their status: the difference to what is stored.
    pub provisions: Vec<Wanted>,
}

/// What `store` comes to, from nothing. Equal input gives equal output.
pub fn translate(store: &Store, config: &Config) -> Translation {
    Translator::default().update(store, &BTreeSet::new(), config).clone()
}
