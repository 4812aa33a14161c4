//! Header fields: what they may be made of, and what they mean to a proxy.

/// What a field means to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    Connection,
    ContentLength,
    EndToEnd,
    Expect,
    /// Says where the request came from and by what it is known: this proxy's own word counts, and that of clients which
    /// are trusted.
    Forwarded,
    Host,
    /// Belongs to one connection (RFC 9110 section 7.6.1).
    HopByHop,
    /// The trace that the request belongs to.
    Trace,
    TransferEncoding,
    Upgrade,
}

impl Meaning {
    /// The meaning of a field in either direction. `Forwarded` names are read with `_` as `-`, as CGI-like servers do; what
    /// those would take for framing goes no further.
    pub fn of(name: &[u8]) -> Self {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            2 if is("te") => Self::HopByHop,
            4 if is("host") => Self::Host,
            6 if is("expect") => Self::Expect,
            7 if is("upgrade") => Self::Upgrade,
            9 if is("forwarded") || is_cgi(name, b"x-real-ip") => Self::Forwarded,
            10 if is("connection") => Self::Connection,
            10 if is("keep-alive") => Self::HopByHop,
            10 if is("tracestate") => Self::Trace,
            11 if is("traceparent") => Self::Trace,
            12 if is_cgi(name, b"x-request-id") => Self::Forwarded,
            14 if is("content-length") => Self::ContentLength,
            14 if is("http2-settings") || is_cgi(name, b"content-length") => Self::HopByHop,
            16 if is("proxy-connection") => Self::HopByHop,
            17 if is("transfer-encoding") => Self::TransferEncoding,
            17 if is_cgi(name, b"transfer-encoding") => Self::HopByHop,
            18 if is("proxy-authenticate") => Self::HopByHop,
            19 if is("proxy-authorization") => Self::HopByHop,
            12.. if name.get(..12).is_some_and(|start| is_cgi(start, b"x-forwarded-")) => Self::Forwarded,
            _ => Self::EndToEnd,
        }
    }
}

/// Whether `name` is `known` (lower case) to a server that turns `-` into `_` and letters into capitals.
fn is_cgi(name: &[u8], known: &[u8]) -> bool {
    name.len() == known.len()
        && name.iter().zip(known).all(|(byte, known)| {
            let byte = if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
            byte == *known
        })
}

/// RFC 9110 section 5.6.2.
pub fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| IS_TOKEN[usize::from(*byte)])
}

/// Looked up for each byte of each name of a message.
static IS_TOKEN: [bool; 256] = {
    let marks = b"!#$%&'*+-.^_`|~";
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < marks.len() {
        table[marks[byte] as usize] = true;
        byte += 1;
    }
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] |= byte.is_ascii_alphanumeric();
        byte += 1;
    }
    table
};

/// Whether a field can hold this value: no control character but the tab (RFC 9110 section 5.5).
pub fn is_value(value: &[u8]) -> bool {
    value.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control())
}

/// Fields that frame, route, authenticate or control the connection may not be trailers (RFC 9110 section 6.5.1): a
/// server behind that merges trailers into the head would be led by them.
const FORBIDDEN_TRAILERS: [&[u8]; 14] = [
    b"authorization",
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"cookie",
    b"expect",
    b"host",
    b"keep-alive",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"via",
];

/// Of a name in lower case.
pub fn is_forbidden_trailer(name: &[u8]) -> bool {
    FORBIDDEN_TRAILERS.contains(&name)
}
