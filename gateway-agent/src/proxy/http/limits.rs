//! Deadlines and bounds of the proxy, each with its reason. No behaviour.

use std::time::Duration;

/// How often deadlines are looked at; they are late by at most two of these. Coarse, so that arming one is a store.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// From the first byte of a request head (of a connection's first head: from accept) to its end, however it drips.
/// Slow mobile links deliver 64 KiB in less.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// A client connection without a request. Browsers give up after 60 to 300 s; shorter than most, memory is ours.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// One connection attempt: two SYN retransmissions (1 s, 3 s), then another endpoint is the better bet.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// A TLS handshake with a server: a round trip or two, and computing on both sides. One that is overloaded is not to hold
/// requests for longer than one that does not answer at all.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(4);

/// From the end of the request to the answer's head. What common proxies use; applications rely on it.
pub(super) const RESPONSE_HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// No byte of a body moved in either direction.
pub(super) const BODY_STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A client that has closed its sending side may still read, or be gone: nothing tells which. For this long without
/// progress it is taken to read.
pub(super) const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(2);

/// No byte in an upgraded connection. Applications ping every 20 to 60 s; idle terminals live for long.
pub(super) const TUNNEL_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// After an answer that came before the request's end: reading on lets the client see the answer, where closing at
/// once would reset it away (RFC 9112 section 9.6).
pub(super) const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// What is thrown away meanwhile.
pub(super) const LINGER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Connections tried for one request. A third endpoint that refuses means that the service is down.
pub(super) const CONNECT_ATTEMPTS_MAX: usize = 3;

/// Repetitions of a request that was sent and not answered. One covers the race with a server that closes an idle
/// connection; more would multiply load on servers that fail.
pub(super) const RETRIES_MAX: u32 = 1;

/// Requests in a row that an endpoint fails before others are preferred to it: one or two happen when a server restarts.
pub(super) const EJECTION_FAILURES: u32 = 5;

/// For how long, in ticks: 10 s, in which a server that was restarted is back, and a readiness probe has found out.
pub(super) const EJECTION_TICKS: u64 = 100;

/// Pairs of endpoints that are drawn so as to find one that does not fail. With half of them failing, one request in 64
/// still goes to such; with nearly all, the few that are left do not get everything.
pub(super) const EJECTION_DRAWS: usize = 3;

/// Requests that pay for one further try, where their routes ask for such: an outage makes a fifth more load.
pub(super) const RETRY_REQUESTS: u64 = 5;

/// Further tries that a worker may make at once after a quiet time. Each tick gives one: what is asked seldom is always
/// tried again.
pub(super) const RETRY_BURST_MAX: u64 = 100;

/// A body that is kept to be sent again or to a mirror. Forms and calls of APIs are smaller; uploads are not repeated.
pub(super) const KEPT_BODY_BYTES_MAX: usize = 1024 * 1024;

/// All of a worker.
pub(super) const KEPT_BODIES_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Mirrored requests of a worker under way: what waits for a mirror that is slow costs a connection each.
pub(super) const MIRRORS_MAX: usize = 256;

/// One mirrored request, from its start to the end of the answer that nobody reads.
pub(super) const MIRROR_TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes of such an answer that are read so that the connection can be used again.
pub(super) const MIRROR_ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// A connection kept for reuse. Below the 75 s of nginx and the 60 s of many load balancers, so that we close first.
pub(super) const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(55);

/// Kept connections per endpoint and worker: what bursts of one worker use again within seconds.
pub(super) const POOL_IDLE_PER_ENDPOINT_MAX: usize = 128;

/// Kept connections per worker: a descriptor and some kilobytes of kernel memory each.
pub(super) const POOL_IDLE_MAX: usize = 1024;

/// Ticks between two looks at kept connections.
pub(super) const SWEEP_TICKS: u64 = 10;

/// The buffer of a connection at first: nearly all heads and most bodies fit.
pub(super) const SMALL_BUFFER_BYTES: usize = 8 * 1024;

/// The buffer of a large head or a streaming body. 64 KiB reads measured 1.6 times the throughput of 16 KiB reads.
pub(super) const LARGE_BUFFER_BYTES: usize = 64 * 1024;

/// One piece of a body on its way between two versions: a frame of HTTP/2 by default, and what one read brings mostly.
pub(super) const PIECE_BYTES_MAX: usize = 16 * 1024;

/// Unused small buffers and parsed heads kept by a worker: 256 requests in flight at once without allocation, 4 MiB.
pub(super) const SMALL_BUFFERS_KEPT_MAX: usize = 512;

/// Unused large buffers kept by a worker: 4 MiB.
pub(super) const LARGE_BUFFERS_KEPT_MAX: usize = 64;

const _: () = assert!(LARGE_BUFFER_BYTES >= super::super::h1::limits::HEAD_BYTES_MAX);
