//! Reads connections as the proxy does: requests one after the other, in pieces as they arrive.
//!
//! It is the loop around the agent's parsers and nothing else; sockets, limits of time and answers are not in it.

use crate::proxy::h1::encode::{self, Forwarded};
use crate::proxy::h1::framing::Body;
use crate::proxy::h1::{Framing, RequestHead, Scanner};
use crate::snapshot::{ForwardedStyle, Rewrite};

/// What the forwarded heads in here say of the client.
pub const FORWARDED: Forwarded<'static> = Forwarded {
    client: "192.0.2.1",
    proto: "http",
    port: 80,
    local: "198.51.100.1:8080",
    request_id: "00000000-0000-4000-8000-000000000000",
    style: ForwardedStyle::Both,
    is_trusted: false,
};

/// One request that was taken, with its whole body.
#[derive(Clone, Debug)]
pub struct Message {
    pub head: RequestHead,
    /// Bytes of empty lines before it.
    pub n_before: usize,
    /// As the head came.
    pub bytes: Vec<u8>,
    pub body: Vec<u8>,
    /// As the body came, with what frames it.
    pub raw_body: Vec<u8>,
}

/// Why no further request was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The last one asked for it.
    Closed,
    /// A request is under way, or none has begun.
    Open,
    Refused,
}

/// What a server behind learns of a message, and what decides where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub method: Vec<u8>,
    pub host: String,
    pub path: String,
    pub query: Option<String>,
    pub framing: Framing,
    pub expects_continue: bool,
    pub upgrade: Option<Vec<u8>>,
    pub body: Vec<u8>,
}

// === impl Message ===

impl Message {
    pub fn summary(&self) -> Summary {
        let Self { head, bytes, body, .. } = self;
        Summary {
            method: head.method(bytes).to_vec(),
            host: head.host().to_owned(),
            path: head.path(bytes).to_owned(),
            query: head.query(bytes).map(str::to_owned),
            framing: head.framing,
            expects_continue: head.expects_continue,
            upgrade: head.upgrade.map(|upgrade| upgrade.bytes(bytes).to_vec()),
            body: body.clone(),
        }
    }

    /// Names and values that are passed on.
    pub fn fields(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.head.kept(&self.bytes).map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    }

    /// What the server behind is sent for the head.
    pub fn forwarded_head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        encode_request(&self.head, &self.bytes, FORWARDED, &mut out);
        out
    }

    /// What the server behind is sent.
    pub fn forwarded(&self) -> Vec<u8> {
        [self.forwarded_head(), self.raw_body.clone()].concat()
    }
}

/// Appends what the server behind is sent for `head`, by a rule without filters.
pub fn encode_request(request: &RequestHead, head: &[u8], forwarded: Forwarded<'_>, out: &mut Vec<u8>) {
    encode::request(request, head, forwarded, (&Rewrite::default(), &[]), out);
}

/// The requests in `stream`, which arrives in pieces that end at `ends`.
pub fn requests(stream: &[u8], ends: &[usize]) -> (Vec<Message>, End) {
    let mut messages = Vec::new();
    let mut reader = Reader { stream, ends, arrived: 0, at: 0 };
    loop {
        match reader.request() {
            Ok(message) => {
                let stays_open = message.head.keep_alive;
                messages.push(message);
                if !stays_open {
                    return (messages, End::Closed);
                }
            }
            Err(end) => return (messages, end),
        }
    }
}

struct Reader<'a> {
    stream: &'a [u8],
    /// Of the pieces still to come.
    ends: &'a [usize],
    arrived: usize,
    /// Where the present message begins.
    at: usize,
}

impl<'a> Reader<'a> {
    fn request(&mut self) -> Result<Message, End> {
        let mut scanner = Scanner::request();
        let place = loop {
            match scanner.scan(self.buffered()) {
                Ok(Some(place)) => break place,
                Ok(None) => self.wait()?,
                Err(_) => return Err(End::Refused),
            }
        };
        let bytes = self.buffered()[place.clone()].to_vec();
        self.at += place.end;
        let mut head = RequestHead::default();
        head.parse(&bytes).map_err(|_error| End::Refused)?;
        let (body, raw_body) = self.body(Body::new(head.framing))?;
        Ok(Message { head, n_before: place.start, bytes, body, raw_body })
    }

    fn body(&mut self, mut body: Body) -> Result<(Vec<u8>, Vec<u8>), End> {
        let mut data = Vec::new();
        let start = self.at;
        while !body.is_done() {
            let buffered = self.buffered();
            let segment = body.next(buffered).map_err(|_error| End::Refused)?;
            let n = segment.framing + segment.data;
            data.extend_from_slice(&buffered[segment.framing..n]);
            self.at += n;
            if n == 0 {
                self.wait()?;
            }
        }
        Ok((data, self.stream[start..self.at].to_vec()))
    }

    fn buffered(&self) -> &'a [u8] {
        &self.stream[self.at..self.arrived]
    }

    fn wait(&mut self) -> Result<(), End> {
        let (end, rest) = self.ends.split_first().ok_or(End::Open)?;
        self.arrived = *end;
        self.ends = rest;
        Ok(())
    }
}
