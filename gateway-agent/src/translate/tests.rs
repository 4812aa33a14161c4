//! Translation as a whole, rule by rule.

mod scenario;
mod service;

mod addresses;
mod backends;
mod end_to_end;
mod gateways;
mod http;
mod l4;
mod listeners;
mod order;
mod pool;
mod routes;
mod tls;
