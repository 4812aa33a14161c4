//! The bounds of the userspace data path, each with its reason.
//!
//! **Invariant:** no I/O; [`Budget`] is computed from a number that the caller read.

use std::time::Duration;

/// Size of a relay buffer: what one `read` takes from a socket whose receive buffer has grown under load. Larger reads
/// gain nothing once `splice` has taken over.
pub(super) const BUFFER_BYTES: usize = 64 * 1024;

/// Buffers that a worker keeps for reuse (4 MiB). Above it they go back to the allocator: after a burst the memory of
/// idle buffers must not stay for ever.
pub(super) const IDLE_BUFFERS: usize = 64;

/// Bytes that a direction has moved by `read` and `write` before `splice` is considered. Most connections are shorter,
/// and for them two more descriptors cost more than the copy.
pub(super) const SPLICE_AFTER_BYTES: u64 = 64 * 1024;

/// Capacity asked for a pipe. The default of 64 KiB holds 16 fragments, which small segments use up; 1 MiB would let
/// one user's pipes reach the kernel's soft limit (64 MiB in all) with 64 of them.
pub(super) const PIPE_BYTES: i32 = 256 * 1024;

/// Pipes that one worker may have, whatever its descriptor budget: 256 x 256 KiB is the kernel's soft limit for one
/// user, and connections that find none go on by copy.
pub(super) const PIPES: usize = 256;

/// Bytes that a side does not take, for so long, end a relay behind TLS: there a reset of the sender is noticed only by
/// reading on. Paused downloads go on after minutes, seldom after more.
pub(super) const STALL: Duration = Duration::from_secs(3600);

/// Rounds of read and write before a connection lets others of its worker run: 1 MiB by copy.
pub(super) const ROUNDS_PER_POLL: usize = 16;

/// Connections that the kernel may hold for one socket before they are accepted; it caps this at `somaxconn`.
pub(super) const BACKLOG: i32 = 4096;

/// Pause of an accept loop after the process ran out of descriptors or memory: the kernel queue holds the connections,
/// and a slot is freed only when one of ours ends.
pub(super) const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// How long a TCP listener that closes goes on to accept, with new SYNs filtered out: the final ACK of a handshake
/// takes one round trip, and what arrives after the close is reset.
pub(super) const CLOSE_LINGER: Duration = Duration::from_millis(100);

/// Other targets that are tried after a backend refused or did not answer. Each costs the client up to a connect
/// deadline; three in all end before the usual client gives up.
pub(super) const CONNECT_ATTEMPTS: usize = 3;

/// TLS handshakes that one worker has under way; further ones are refused. One takes some 20 KiB until it is done, so
/// this is 80 MiB. At the 2,000 or so that a core computes in a second the bound means two seconds of arrears: those
/// that come after it would not be served within a client's patience.
pub(super) const HANDSHAKES: usize = 4096;

/// Longest handshake message taken for a ClientHello. Post-quantum hellos have 1.5-2 KiB; 16 KiB is the largest TLS
/// record, and servers refuse larger hellos.
pub(super) const HELLO_BYTES: usize = 16 * 1024;

/// Longest raw prefix kept until the hello is whole: the message and its record headers (5 bytes each). It equals
/// [`BUFFER_BYTES`], so a hello never holds more than a relay may hold, and allows a full-size message in fragments of
/// two bytes.
pub(super) const HELLO_RAW_BYTES: usize = BUFFER_BYTES;

/// Largest UDP payload that IPv6 without jumbograms can carry is 65,527 bytes, and IPv4's is smaller.
pub(super) const DATAGRAM_BYTES: usize = 64 * 1024;

/// Datagrams taken from a socket before other tasks of the worker run.
pub(super) const DATAGRAMS_PER_POLL: usize = 64;

/// UDP flows of one worker, whatever its descriptor budget: each costs a socket of about 2 KiB in the kernel.
pub(super) const UDP_FLOWS: usize = 16_384;

/// Longest wait between attempts to open a listener that failed.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(5);
pub(super) const RETRY_MIN: Duration = Duration::from_millis(250);

/// Commands to a worker that wait to be taken: the listener manager has at most a few in flight.
pub(super) const COMMANDS: usize = 64;

/// The waits of the relays. A value, so that tests can shorten them.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From accept to the end of a PROXY protocol header. A load balancer sends it at once; a segment that is lost is sent
    /// again after 0.2 to 3 s.
    pub proxy_header: Duration,
    /// From accept to a complete ClientHello. A handshake's first flight needs a few round trips at most; a silent
    /// client frees its socket then.
    pub hello: Duration,
    /// From there to the end of the handshake: a round trip or two, and the client's own computing.
    pub handshake: Duration,
    /// For one connect to a backend: a lost SYN is sent again after 1 s and 3 s.
    pub connect: Duration,
    /// With one direction ended, silence of the other for so long ends the connection: the second FIN may never come.
    /// Two minutes let a slow answer to a half-closed request begin.
    pub half_closed: Duration,
    /// A UDP flow without datagrams in either direction; that of the kernel path.
    pub udp_idle: Duration,
    /// How long existing UDP flows are served after the drain began, so that answers under way arrive.
    pub udp_drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            proxy_header: Duration::from_secs(5),
            hello: Duration::from_secs(10),
            handshake: Duration::from_secs(10),
            connect: Duration::from_secs(5),
            half_closed: Duration::from_secs(120),
            udp_idle: Duration::from_secs(60),
            udp_drain: Duration::from_secs(1),
        }
    }
}

/// Keepalive of relayed connections. Both ends may be silent for as long as they like, so probes are the only way to
/// learn that a peer is gone: 5 minutes of silence, then 4 probes 30 s apart.
pub(super) const KEEPALIVE_IDLE: Duration = Duration::from_secs(300);
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
pub(super) const KEEPALIVE_PROBES: u32 = 4;

/// Connections of one worker, whatever its descriptor budget: some 8 KiB each in this process and in the kernel when
/// idle, so half a GiB.
pub(super) const CONNECTIONS: usize = 65_536;

/// Shares of one worker in the process's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// Client connections at a time; accepting pauses there.
    pub connections: usize,
    pub pipes: usize,
    pub udp_flows: usize,
}

/// Descriptors left to all but relayed traffic: listeners, control plane, maps, logs.
const RESERVED_DESCRIPTORS: usize = 256;

impl Budget {
    /// Divides `descriptors` (`RLIMIT_NOFILE`) among `workers`: half of a worker's share is for connections of two
    /// sockets each, a quarter for UDP flows, an eighth for pipes; the rest is for HTTP's idle upstream connections.
    pub(super) fn new(descriptors: usize, workers: usize) -> Self {
        let share = descriptors.saturating_sub(RESERVED_DESCRIPTORS) / workers.max(1);
        Self {
            connections: (share / 4).clamp(16, CONNECTIONS),
            pipes: (share / 16).min(PIPES),
            udp_flows: (share / 4).clamp(16, UDP_FLOWS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn budget_fits_into_the_descriptor_limit() {
        for (descriptors, workers) in [(1024, 1), (1024, 4), (20_000, 2), (1 << 20, 64)] {
            let budget = Budget::new(descriptors, workers);
            let used = (2 * budget.connections + 2 * budget.pipes + budget.udp_flows) * workers;
            assert!(used < descriptors, "{descriptors} {workers}: {budget:?}");
        }
    }

    #[test]
    fn budget_leaves_something_where_the_limit_is_tiny() {
        assert_eq!(Budget::new(10, 8), Budget { connections: 16, pipes: 0, udp_flows: 16 });
    }
}
