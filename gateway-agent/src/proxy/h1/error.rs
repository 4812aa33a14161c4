//! Why a message is refused. Which status answers it is decided in `proxy::http::error`, not here.

use thiserror::Error;

/// A head that cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeadError {
    #[error("a line ends with a bare line feed")]
    BareLineFeed,
    #[error("the head is not HTTP/1")]
    Syntax,
    #[error("the version is neither HTTP/1.0 nor HTTP/1.1")]
    Version,
    #[error("the request line is longer than {} bytes", super::limits::REQUEST_LINE_BYTES_MAX)]
    RequestLineTooLong,
    #[error("the head is larger than {} bytes", super::limits::HEAD_BYTES_MAX)]
    HeadTooLarge,
    #[error("the head has more than {} fields", super::limits::FIELDS_MAX)]
    TooManyFields,
    #[error("no host, several, or one that is no host name")]
    Host,
    #[error("the target is not a path, an absolute URI or `*` with OPTIONS")]
    Target,
    #[error("CONNECT is not served")]
    Connect,
    #[error("Content-Length is not one number")]
    ContentLength,
    #[error("Transfer-Encoding is not exactly `chunked`, or stands beside Content-Length or in HTTP/1.0")]
    TransferEncoding,
    #[error("Expect is not `100-continue`")]
    Expectation,
    #[error("too many connection options")]
    ConnectionOptions,
    #[error("the status is below 100")]
    Status,
}

/// A body that cannot be forwarded further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BodyError {
    #[error("a chunk is not framed as RFC 9112 section 7.1 says")]
    Chunk,
    #[error("chunk extensions outweigh the data")]
    ChunkExtensions,
    #[error("the trailer section is malformed, too large or holds a field that must not be there")]
    Trailer,
    #[error("the body ended before its announced end")]
    Truncated,
}
