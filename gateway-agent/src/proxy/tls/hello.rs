//! Finds the server name in a ClientHello that arrives in any pieces: TCP segments cut anywhere, the handshake message
//! spread over any number of TLS records (RFC 8446 5.1).
//!
//! **Invariant:** no I/O, no clock. Does not judge versions, ciphers or extensions other than `server_name`; unknown
//! ones, GREASE (RFC 8701) and encrypted hellos (RFC 9849) change nothing: the outer name routes.

use super::super::limits::HELLO_BYTES;

/// What is known after the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So far a ClientHello could come of it.
    NeedMore,
    /// The hello is whole.
    Hello(Hello),
    Invalid(Invalid),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// In lower case, without a trailing dot. `None`: the client named no server.
    pub server_name: Option<String>,
}

/// Why these bytes cannot be routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("not TLS")]
    NotTls,
    #[error("SSL 2.0 hello")]
    Ssl2,
    #[error("alert instead of a hello")]
    Alert,
    #[error("TLS record that no ClientHello can have")]
    Record,
    #[error("handshake message other than ClientHello")]
    NotClientHello,
    #[error("ClientHello larger than 16 KiB")]
    TooLong,
    #[error("malformed ClientHello")]
    Malformed,
    #[error("server name that is no host name")]
    ServerName,
}

const RECORD_HEADER_BYTES: usize = 5;
const HANDSHAKE_HEADER_BYTES: usize = 4;
const CONTENT_ALERT: u8 = 21;
const CONTENT_HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// RFC 8446 5.1: the length of a plaintext record.
const RECORD_MAX_BYTES: usize = 1 << 14;
const EXTENSION_SERVER_NAME: u16 = 0;
const NAME_TYPE_HOST: u8 = 0;
/// RFC 1035 2.3.4, without the trailing dot; a label has at most 63 octets.
const NAME_MAX_BYTES: usize = 253;
const LABEL_MAX_BYTES: usize = 63;

/// Takes the bytes of a connection in order.
#[derive(Debug, Default)]
pub struct Parser {
    header: [u8; RECORD_HEADER_BYTES],
    header_len: usize,
    /// Bytes of the current record still to come.
    record_left: usize,
    /// The handshake message so far, its own header included.
    message: Vec<u8>,
}

impl Parser {
    /// Takes the next bytes. After anything but [`Progress::NeedMore`] it is not to be called again.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Progress {
        loop {
            if self.record_left == 0 {
                match self.take_header(&mut bytes) {
                    Ok(true) => {}
                    Ok(false) => return Progress::NeedMore,
                    Err(invalid) => return Progress::Invalid(invalid),
                }
            }
            let (part, rest) = bytes.split_at(bytes.len().min(self.record_left));
            bytes = rest;
            self.record_left -= part.len();
            // What follows the hello in its record is none of ours, so the message never outgrows its bound.
            let wanted = HANDSHAKE_HEADER_BYTES + HELLO_BYTES - self.message.len();
            self.message.extend_from_slice(part.get(..wanted).unwrap_or(part));
            match self.message() {
                Err(invalid) => return Progress::Invalid(invalid),
                Ok(Some(body)) => {
                    return match parse(body) {
                        Ok(server_name) => Progress::Hello(Hello { server_name }),
                        Err(invalid) => Progress::Invalid(invalid),
                    };
                }
                Ok(None) if bytes.is_empty() => return Progress::NeedMore,
                Ok(None) => {}
            }
        }
    }

    /// Completes the record header. False: more bytes are needed. Fails on the first byte that is wrong.
    fn take_header(&mut self, bytes: &mut &[u8]) -> Result<bool, Invalid> {
        while let Some((byte, rest)) = bytes.split_first() {
            let is_first = self.header_len == 0 && self.message.is_empty();
            match (self.header_len, *byte) {
                (0, CONTENT_HANDSHAKE) => {}
                (0, CONTENT_ALERT) if is_first => return Err(Invalid::Alert),
                // A two-byte length with the top bit set; nothing that is TLS begins so.
                (0, 0x80..) if is_first => return Err(Invalid::Ssl2),
                (0, _) if is_first => return Err(Invalid::NotTls),
                (0, _) => return Err(Invalid::Record),
                (1, 3) => {}
                (1, _) if self.message.is_empty() => return Err(Invalid::NotTls),
                (1, _) => return Err(Invalid::Record),
                _ => {}
            }
            *bytes = rest;
            self.header[self.header_len] = *byte;
            self.header_len += 1;
            if self.header_len == RECORD_HEADER_BYTES {
                self.header_len = 0;
                let length = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
                // RFC 8446 5.1: no empty handshake fragments, which could go on for ever.
                if length == 0 || length > RECORD_MAX_BYTES {
                    return Err(Invalid::Record);
                }
                self.record_left = length;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The body of the ClientHello once it is whole.
    fn message(&self) -> Result<Option<&[u8]>, Invalid> {
        let Some((&kind, rest)) = self.message.split_first() else { return Ok(None) };
        if kind != CLIENT_HELLO {
            return Err(Invalid::NotClientHello);
        }
        let Some((length, body)) = rest.split_first_chunk::<3>() else { return Ok(None) };
        let [high, middle, low] = *length;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if length > HELLO_BYTES {
            return Err(Invalid::TooLong);
        }
        Ok(body.get(..length))
    }
}

/// The server name of a whole ClientHello (RFC 8446 4.1.2).
fn parse(body: &[u8]) -> Result<Option<String>, Invalid> {
    let mut hello = Input(body);
    // legacy_version and random.
    hello.take(2 + 32)?;
    if hello.vector8()?.0.len() > 32 {
        return Err(Invalid::Malformed);
    }
    let ciphers = hello.vector16()?.0.len();
    if ciphers < 2 || !ciphers.is_multiple_of(2) || hello.vector8()?.0.is_empty() {
        return Err(Invalid::Malformed);
    }
    // Before TLS 1.2 a hello could end here.
    if hello.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = hello.vector16()?;
    if !hello.0.is_empty() {
        return Err(Invalid::Malformed);
    }
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.vector16()?;
        if kind == EXTENSION_SERVER_NAME {
            // RFC 8446 4.2: no extension twice. Two names could be routed by one and served by the other.
            if name.is_some() {
                return Err(Invalid::Malformed);
            }
            name = Some(server_name(content)?);
        }
    }
    Ok(name)
}

/// The one host name of a `server_name` extension (RFC 6066 3).
fn server_name(mut content: Input<'_>) -> Result<String, Invalid> {
    let mut list = content.vector16()?;
    if !content.0.is_empty() {
        return Err(Invalid::Malformed);
    }
    let mut name = None;
    while !list.0.is_empty() {
        let kind = list.u8()?;
        let entry = list.vector16()?;
        if kind == NAME_TYPE_HOST && name.replace(entry.0).is_some() {
            return Err(Invalid::ServerName);
        }
    }
    host_name(name.ok_or(Invalid::ServerName)?).ok_or(Invalid::ServerName)
}

/// `name` in the form in which host tables are keyed. Underscores are let through: they are in use.
fn host_name(name: &[u8]) -> Option<String> {
    // RFC 6066 3 forbids the trailing dot; clients send it all the same.
    let name = name.strip_suffix(b".").unwrap_or(name);
    let is_label = |label: &[u8]| {
        (1..=LABEL_MAX_BYTES).contains(&label.len())
            && label.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if name.len() > NAME_MAX_BYTES || !name.split(|byte| *byte == b'.').all(is_label) {
        return None;
    }
    String::from_utf8(name.to_ascii_lowercase()).ok()
}

/// Bytes taken from the front.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Invalid> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(Invalid::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, Invalid> {
        let (first, rest) = self.0.split_first().ok_or(Invalid::Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u16(&mut self) -> Result<u16, Invalid> {
        Ok(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    fn vector8(&mut self) -> Result<Self, Invalid> {
        let length = self.u8()?;
        self.take(usize::from(length)).map(Self)
    }

    fn vector16(&mut self) -> Result<Self, Invalid> {
        let length = self.u16()?;
        self.take(usize::from(length)).map(Self)
    }
}

#[cfg(test)]
mod tests;
