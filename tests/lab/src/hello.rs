//! Builds ClientHello messages of chosen shape (RFC 8446 4.1.2), for tests of what a passthrough listener must take.
//!
//! Complete enough to be parsed by a router, not to finish a handshake: tests of whole handshakes use `openssl`.

/// What to put into the message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hello<'a> {
    pub server_name: Option<&'a str>,
    /// Fills up with the padding extension (RFC 7685) until the message has at least this length.
    pub at_least: usize,
}

const LEGACY_VERSION: [u8; 2] = [3, 3];
const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_ALPN: u16 = 16;
const EXTENSION_PADDING: u16 = 21;
const EXTENSION_SUPPORTED_VERSIONS: u16 = 43;

fn length(bytes: &[u8]) -> [u8; 2] {
    u16::try_from(bytes.len()).expect("test messages are short").to_be_bytes()
}

fn with_length(bytes: &[u8]) -> Vec<u8> {
    [&length(bytes)[..], bytes].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &with_length(content)].concat()
}

impl Hello<'_> {
    /// The handshake message, without record headers.
    pub fn message(&self) -> Vec<u8> {
        let mut extensions = extension(EXTENSION_SUPPORTED_VERSIONS, &[4, 3, 4, 3, 3]);
        if let Some(name) = self.server_name {
            let entry = [&[0][..], &with_length(name.as_bytes())].concat();
            extensions.extend(extension(EXTENSION_SERVER_NAME, &with_length(&entry)));
        }
        extensions.extend(extension(EXTENSION_ALPN, &with_length(b"\x08http/1.1")));
        let bare = self.assemble(&extensions).len();
        if let Some(missing) = self.at_least.checked_sub(bare + 4) {
            extensions.extend(extension(EXTENSION_PADDING, &vec![0; missing]));
        }
        self.assemble(&extensions)
    }

    fn assemble(&self, extensions: &[u8]) -> Vec<u8> {
        let mut body = LEGACY_VERSION.to_vec();
        body.extend([0x5a; 32]);
        // An empty session id, one cipher suite, the null compression.
        body.push(0);
        body.extend(with_length(&[0x13, 0x01]));
        body.extend([1, 0]);
        body.extend(with_length(extensions));
        let size = u32::try_from(body.len()).expect("test messages are short").to_be_bytes();
        [&[1, size[1], size[2], size[3]][..], &body].concat()
    }

    /// The message in records of at most `record` bytes each.
    pub fn records(&self, record: usize) -> Vec<u8> {
        self.message()
            .chunks(record)
            .flat_map(|chunk| [&[22, 3, 1][..], &with_length(chunk)].concat())
            .collect()
    }
}
