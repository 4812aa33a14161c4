//! The agent's binary with real clients and servers, in network namespaces, IPv4 and IPv6.
//!
//! Needs root; without it every test fails and says so. What a test needs of the network it makes itself, so tests run
//! side by side.

#[path = "netns/bed.rs"]
mod bed;

#[path = "netns/bad_input.rs"]
mod bad_input;
#[path = "netns/bad_tls.rs"]
mod bad_tls;
#[path = "netns/grpc.rs"]
mod grpc;
#[path = "netns/h2spec.rs"]
mod h2spec;
#[path = "netns/http.rs"]
mod http;
#[path = "netns/http2.rs"]
mod http2;
#[path = "netns/https.rs"]
mod https;
#[path = "netns/lifecycle.rs"]
mod lifecycle;
#[path = "netns/mutual.rs"]
mod mutual;
#[path = "netns/packets.rs"]
mod packets;
#[path = "netns/pool.rs"]
mod pool;
#[path = "netns/proxy_protocol.rs"]
mod proxy_protocol;
#[path = "netns/steering.rs"]
mod steering;
#[path = "netns/survival.rs"]
mod survival;
#[path = "netns/syscalls.rs"]
mod syscalls;
#[path = "netns/tcp.rs"]
mod tcp;
#[path = "netns/tls.rs"]
mod tls;
#[path = "netns/udp.rs"]
mod udp;
#[path = "netns/websocket.rs"]
mod websocket;
