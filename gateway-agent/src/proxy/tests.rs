//! The proxy as a whole, over real sockets of the loopback interface.

mod harness;
mod http;
mod https;
mod listeners;
mod mutual;
mod pki;
mod proxy_protocol;
mod tcp;
mod terminate;
mod tls;
mod udp;
mod upstream;
