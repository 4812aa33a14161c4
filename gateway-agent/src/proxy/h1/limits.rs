//! Bounds of HTTP/1 messages, each with its reason. No behaviour.

/// A whole head, first line included. Large cookies and tokens reach 16-32 KiB in the field; the buffers that hold a
/// head are of this size too.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The request line. RFC 9112 section 3 asks for at least 8000 bytes; no common server takes more than 16 KiB, so a
/// longer one would fail behind us anyway.
pub const REQUEST_LINE_BYTES_MAX: usize = 8 * 1024;

/// Header fields of one head. Real traffic stays below 100, proxies in front may add some tens.
pub const FIELDS_MAX: usize = 256;

/// Empty lines before a request line. RFC 9112 section 2.2 asks to ignore at least one, which old clients send after
/// a POST body.
pub const LEADING_EMPTY_LINES_MAX: usize = 1;

/// Options in the `Connection` fields of one head; each is compared with every field. Two or three are usual.
pub const CONNECTION_OPTIONS_MAX: usize = 32;

/// `Host` and the authority of a target: 253 bytes of name, a dot, a colon and a port, with room for IPv6 literals.
pub const AUTHORITY_BYTES_MAX: usize = 320;

/// Interim (1xx) answers before the final one. 103 is sent once or twice, 102 every few seconds at most.
pub const INTERIM_RESPONSES_MAX: u32 = 16;

/// One chunk-size line with its extensions. Signed uploads use 85 bytes.
pub const CHUNK_LINE_BYTES_MAX: u32 = 4 * 1024;

/// Chunk extensions of one body beyond what it carries in data, so that a body cannot consist of extensions while
/// an upload of any length with a signature per chunk still passes.
pub const CHUNK_EXTENSION_BYTES_SPARE: u64 = 16 * 1024;

/// The trailer section. It holds checksums and a status.
pub const TRAILER_BYTES_MAX: u32 = 16 * 1024;

const _: () = assert!(REQUEST_LINE_BYTES_MAX < HEAD_BYTES_MAX);
// Spans are `u32`.
const _: () = assert!(HEAD_BYTES_MAX < u32::MAX as usize);
