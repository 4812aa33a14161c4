//! Makes ClientHellos of the shapes that clients send, for tests.

/// A hello to be. The defaults are those of a plain TLS 1.3 client.
#[derive(Clone, Debug)]
pub(crate) struct Maker {
    pub(crate) name: Option<Vec<u8>>,
    /// A hybrid key share of 1,216 bytes.
    pub(crate) post_quantum: bool,
    pub(crate) encrypted_hello: bool,
    pub(crate) grease: bool,
    /// The handshake message is padded to this many bytes where it is shorter.
    pub(crate) pad_to: usize,
    /// Largest record.
    pub(crate) record_bytes: usize,
    pub(crate) extra: Vec<(u16, Vec<u8>)>,
}

impl Default for Maker {
    fn default() -> Self {
        Self {
            name: Some(b"app.example.com".to_vec()),
            post_quantum: false,
            encrypted_hello: false,
            grease: false,
            pad_to: 0,
            record_bytes: 1 << 14,
            extra: Vec::new(),
        }
    }
}

pub(crate) fn vector8(content: &[u8]) -> Vec<u8> {
    let mut out = vec![u8::try_from(content.len()).expect("short vector")];
    out.extend_from_slice(content);
    out
}

pub(crate) fn vector16(content: &[u8]) -> Vec<u8> {
    let mut out = u16::try_from(content.len()).expect("vector").to_be_bytes().to_vec();
    out.extend_from_slice(content);
    out
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut out = kind.to_be_bytes().to_vec();
    out.extend(vector16(content));
    out
}

impl Maker {
    pub(crate) fn named(name: &str) -> Self {
        Self { name: Some(name.as_bytes().to_vec()), ..Self::default() }
    }

    /// The bytes on the wire.
    pub(crate) fn wire(&self) -> Vec<u8> {
        records(&self.message(), self.record_bytes)
    }

    /// The handshake message.
    pub(crate) fn message(&self) -> Vec<u8> {
        let plain = self.message_with(None);
        if plain.len() >= self.pad_to {
            return plain;
        }
        // The padding extension's own header has 4 bytes.
        self.message_with(Some((self.pad_to - plain.len()).saturating_sub(4)))
    }

    fn message_with(&self, padding: Option<usize>) -> Vec<u8> {
        let mut extensions = Vec::new();
        if self.grease {
            extensions.extend(extension(0x0a0a, &[]));
        }
        extensions.extend(extension(13, &vector16(&[4, 3, 8, 4, 4, 1])));
        if self.encrypted_hello {
            let mut content = vec![0, 0, 1, 0, 1, 7];
            content.extend(vector16(&[5; 32]));
            content.extend(vector16(&[6; 208]));
            extensions.extend(extension(0xfe0d, &content));
        }
        let mut shares = Vec::new();
        if self.post_quantum {
            shares.extend([0x11, 0xec]);
            shares.extend(vector16(&[9; 1216]));
        }
        shares.extend([0, 0x1d]);
        shares.extend(vector16(&[8; 32]));
        extensions.extend(extension(51, &vector16(&shares)));
        if let Some(name) = &self.name {
            let mut entry = vec![0];
            entry.extend(vector16(name));
            extensions.extend(extension(0, &vector16(&entry)));
        }
        for (kind, content) in &self.extra {
            extensions.extend(extension(*kind, content));
        }
        extensions.extend(extension(43, &[2, 3, 4]));
        if let Some(n) = padding {
            extensions.extend(extension(21, &vec![0; n]));
        }
        let mut body = vec![3, 3];
        body.extend([1; 32]);
        body.extend(vector8(&[2; 32]));
        body.extend(vector16(&[0x13, 1, 0x13, 2, 0xc0, 0x2b]));
        body.extend(vector8(&[0]));
        body.extend(vector16(&extensions));
        handshake(1, &body)
    }
}

/// A handshake message.
pub(crate) fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("message").to_be_bytes();
    let mut out = vec![kind, length[1], length[2], length[3]];
    out.extend_from_slice(body);
    out
}

/// `message` in records of at most `record_bytes`.
pub(crate) fn records(message: &[u8], record_bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for fragment in message.chunks(record_bytes) {
        out.extend([22, 3, 1]);
        out.extend(vector16(fragment));
    }
    out
}
