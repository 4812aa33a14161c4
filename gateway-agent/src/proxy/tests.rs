//! The proxy as a whole, over real sockets of the loopback interface.

mod harness;
mod http;
mod https;
mod listeners;
mod tcp;
mod tls;
mod udp;
