//! Bounds of HTTP/2 connections, each with its reason. No behaviour.

use super::super::super::h1;

/// Streams that a client may have open at a time. RFC 9113 section 6.5.2 advises against less than 100; browsers and
/// gRPC clients open another connection beyond.
pub(super) const STREAMS_MAX: u32 = 128;

/// A request's fields, uncompressed: that of HTTP/1. The codec answers 431 to a stream beyond it, and ends a connection
/// whose header block goes on far beyond it, in CONTINUATION frames or by references into the table.
pub(super) const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;

const _: () = assert!(HEADER_LIST_BYTES_MAX as usize == h1::limits::HEAD_BYTES_MAX);

/// What one stream may send before the server behind takes it: 10 MB/s at a round trip of 25 ms.
pub(super) const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// What all streams of one connection may: what a client can make the proxy hold, whatever it opens.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 512 * 1024;

/// What one stream holds of an answer that the client does not take. A piece, so that the next is read while this one
/// is written.
pub(super) const SEND_BUFFER_BYTES_MAX: usize = 32 * 1024;

/// Streams that a client has reset before they were looked at. All frames of one read are taken in before the streams
/// are accepted, and no client has reason to change its mind so often within one.
pub(super) const PENDING_RESETS_MAX: usize = 20;

/// Streams reset for errors of the client, in the life of a connection: real ones make few.
pub(super) const ERROR_RESETS_MAX: usize = 128;

/// Streams reset by the proxy of which frames may still come: those are thrown away. More are forgotten and then an
/// error of the connection.
pub(super) const LOCAL_RESETS_MAX: usize = 128;

/// Requests that a client may cancel beyond those that it lets end: twice what it may have open at a time, so that
/// leaving a page costs nobody a connection. Each one that ends well makes up for one that did not.
pub(super) const CANCELLED_MAX: u32 = 2 * STREAMS_MAX;

/// Requests at a time on one connection to a server, whatever it allows: what servers allow by default.
pub(super) const LINK_STREAMS_MAX: usize = 100;

/// Connections to one endpoint of one worker. What does not find room on them is refused: more than 3,200 requests of
/// one worker wait for that endpoint already.
pub(super) const LINKS_PER_ENDPOINT_MAX: usize = 32;
