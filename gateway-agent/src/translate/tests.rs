//! Translation as a whole, rule by rule.

mod scenario;

mod addresses;
mod backends;
mod end_to_end;
mod filters;
mod gateways;
mod grpc;
mod http;
mod https;
mod incremental;
mod l4;
mod listener_sets;
mod listeners;
mod order;
mod policies;
mod pool;
mod proxy_protocol;
mod routes;
mod scope;
mod service;
mod tls;
