//! Our reading of HTTP/1 requests beside that of another implementation, the server of Go's standard library.
//!
//! Two questions, of many thousands of streams, most of them malformed in one place:
//! - What we take of what a client sends, does the other read it in the same way? A difference is a way past a proxy that
//!   stands before or behind us. Where we refuse and the other does not, we are stricter: that is no difference.
//! - What we send on, does the other read exactly the request that was routed, and as many as we have sent?
//!
//! What the other refuses of what we take is in [`STRICTER`], with the reason. It needs Go; the streams are the
//! same in each run unless `WIRE_SEED` says otherwise.

mod differential {
    pub(super) mod generate;
    pub(super) mod peer;
}

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use differential::generate::Generator;
use differential::peer::{Peer, Read, Request};
use wire_tests::proxy::h1::Framing;
use wire_tests::proxy::h1::request::Asked;
use wire_tests::reading::{Message, requests};

/// Streams that are generated. Some 40 s in a debug build.
const STREAMS: usize = 30_000;

/// Streams that are written before the answers to them are read.
const BATCH: usize = 500;

/// A message that we take and the other does not, the one before it, and whether the other has said that it is bad.
type Untaken<'a> = (Option<&'a Message>, &'a Message, bool);

/// Why the other does not take a message, and what tells it.
type Reason = (&'static str, fn(Untaken<'_>) -> bool);

/// What we take and the other does not.
const STRICTER: &[Reason] = &[
    ("an empty line before a request line (RFC 9112 section 2.2)", |(_, message, _)| message.n_before > 0),
    // Both are about persistence, not about what was read.
    ("it looks at the first Connection field of HTTP/1.0 only, and closes", |(before, _, is_bad)| {
        !is_bad && before.is_some_and(|before| before.head.is_http_1_0 && connection_fields(before).len() > 1)
    }),
    ("it takes `0 close` in a Connection field for `close`, and closes", |(before, _, is_bad)| {
        let holds_close =
            |value: &Vec<u8>| value.to_ascii_lowercase().windows(5).any(|word| word == b"close");
        !is_bad && before.is_some_and(|before| connection_fields(before).iter().any(holds_close))
    }),
];

/// Differences that are told before the test gives up.
const TOLD: usize = 5;

#[test]
fn what_is_taken_is_read_alike_by_another_implementation() {
    let mut generator = Generator::from_environment();
    let mut peer = Peer::start();
    let mut seen = Seen::default();
    let mut streams = corpus();
    let n_corpus = streams.len();
    streams.extend((0..STREAMS).map(|_| generator.stream()));
    for batch in streams.chunks(BATCH) {
        for (stream, read) in batch.iter().zip(peer.read(batch)) {
            seen.compare(stream, &read);
        }
        let sent: Vec<Vec<u8>> = batch.iter().map(|stream| sent_on(stream)).collect();
        for (stream, read) in sent.iter().zip(peer.read(&sent)) {
            seen.compare_sent(stream, &read);
        }
    }
    assert!(seen.differences.is_empty(), "{}", seen.differences.join("\n\n"));
    println!("{n_corpus} streams of the corpus, {STREAMS} of seed {}: {seen:?}", generator.seed());
    // Or the comparison would be of nothing.
    assert!(seen.taken > STREAMS / 2 && seen.refused > STREAMS / 10, "{seen:?}");
}

#[derive(Debug, Default)]
struct Seen {
    taken: usize,
    /// Streams that we refused somewhere.
    refused: usize,
    stricter: BTreeMap<&'static str, usize>,
    differences: Vec<String>,
}

impl Seen {
    /// As they come from clients.
    fn compare(&mut self, stream: &[u8], read: &Read) {
        let (messages, end) = requests(stream, &[stream.len()]);
        self.refused += usize::from(end == wire_tests::reading::End::Refused);
        let mut theirs = read.requests.iter();
        for (at, message) in messages.iter().enumerate() {
            // `OPTIONS *` is answered before the handler.
            if message.head.asked == Asked::Server {
                continue;
            }
            let Some(request) = theirs.next() else {
                let before = at.checked_sub(1).and_then(|before| messages.get(before));
                let is_bad = read.statuses.last().is_some_and(|status| status != "200");
                let known = STRICTER.iter().find(|(_, applies)| applies((before, message, is_bad)));
                let reason = known.map(|(reason, _)| *reason);
                match reason {
                    Some(reason) => *self.stricter.entry(reason).or_default() += 1,
                    None => self
                        .differ(stream, &format!("taken by us, refused by the other: {:?}", read.statuses)),
                }
                return;
            };
            self.taken += 1;
            let (ours, theirs) = (as_read(message), as_read_by_peer(request));
            if ours != theirs {
                return self.differ(stream, &format!("read by us\n{ours:?}\nby the other\n{theirs:?}"));
            }
        }
    }

    /// As we send them on: nothing of it may be refused.
    fn compare_sent(&mut self, stream: &[u8], read: &Read) {
        let (messages, _) = requests(stream, &[stream.len()]);
        if read.requests.len() != messages.len() {
            let counts =
                format!("sent {}, read {}: {:?}", messages.len(), read.requests.len(), read.statuses);
            return self.differ(stream, &counts);
        }
        for (message, request) in messages.iter().zip(&read.requests) {
            let (ours, theirs) = (as_read(message), as_read_by_peer(request));
            let query =
                message.head.query(&message.bytes).map(|query| format!("?{query}")).unwrap_or_default();
            let target = format!("{}{query}", message.head.path(&message.bytes));
            if ours != theirs || target.as_bytes() != request.uri {
                return self.differ(stream, &format!("sent\n{ours:?}\nread as\n{theirs:?}"));
            }
        }
    }

    fn differ(&mut self, stream: &[u8], what: &str) {
        if self.differences.len() < TOLD {
            self.differences.push(format!("{}\n{what}", stream.escape_ascii()));
        }
    }
}

/// What both have read, in a form that both have.
#[derive(Debug, PartialEq, Eq)]
struct AsRead {
    method: String,
    authority: String,
    /// Decoded, without dot segments.
    path: Vec<u8>,
    query: String,
    body: Vec<u8>,
    /// In order for each name; without those that only frame.
    fields: BTreeMap<String, Vec<String>>,
}

fn as_read(message: &Message) -> AsRead {
    let Message { head, bytes, body, .. } = message;
    let mut fields = BTreeMap::<String, Vec<String>>::new();
    for (name, value) in all_fields(bytes) {
        add(&mut fields, &name, &value);
    }
    assert!(body.is_empty() || head.framing != Framing::None);
    AsRead {
        method: text(head.method(bytes)),
        authority: head.authority(bytes).unwrap_or_default().to_owned(),
        path: comparable_path(decode(head.path(bytes).as_bytes())),
        query: text(head.query(bytes).unwrap_or_default().as_bytes()),
        body: body.clone(),
        fields,
    }
}

fn as_read_by_peer(request: &Request) -> AsRead {
    let mut fields = BTreeMap::<String, Vec<String>>::new();
    for (name, value) in &request.fields {
        add(&mut fields, name, value);
    }
    AsRead {
        method: text(&request.method),
        authority: text(&request.host),
        path: comparable_path(if request.path.is_empty() { b"/".to_vec() } else { request.path.clone() }),
        query: text(&request.query),
        body: request.body.clone(),
        fields,
    }
}

fn add(fields: &mut BTreeMap<String, Vec<String>>, name: &[u8], value: &[u8]) {
    let name = text(name).to_ascii_lowercase();
    // The other keeps these elsewhere, and compares nothing with them but lengths, which bodies show.
    if !matches!(name.as_str(), "host" | "content-length" | "transfer-encoding" | "trailer") {
        fields.entry(name).or_default().push(text(value));
    }
}

/// Every line of a head, by the plainest reading there is: ours keeps only what is sent on.
fn all_fields(head: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let lines =
        head.split(|byte| *byte == b'\n').skip(1).map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').expect("a colon");
            (line[..colon].to_vec(), line[colon + 1..].trim_ascii().to_vec())
        })
        .collect()
}

fn connection_fields(message: &Message) -> Vec<Vec<u8>> {
    let fields = all_fields(&message.bytes).into_iter();
    fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"connection")).map(|(_, value)| value).collect()
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Dots are resolved by us and not by the other. Where `%2F` was decoded what they are resolved in is not the same, so
/// such paths are compared by what the server behind gets only.
fn comparable_path(decoded: Vec<u8>) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    let all: Vec<&[u8]> = decoded.split(|byte| *byte == b'/').skip(1).collect();
    for (at, segment) in all.iter().enumerate() {
        let is_last = at + 1 == all.len();
        match *segment {
            b"." if is_last => segments.push(b""),
            b"." => {}
            b".." => {
                segments.pop();
                if is_last {
                    segments.push(b"");
                }
            }
            segment => segments.push(segment),
        }
    }
    segments.iter().flat_map(|segment| [b"/", *segment].concat()).collect()
}

fn decode(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = path;
    while let [first, behind @ ..] = rest {
        rest = behind;
        if let (b'%', [high, low, tail @ ..]) = (first, behind) {
            let digits = [*high, *low];
            let digits = str::from_utf8(&digits).expect("was checked");
            decoded.push(u8::from_str_radix(digits, 16).expect("was checked"));
            rest = tail;
        } else {
            decoded.push(*first);
        }
    }
    decoded
}

fn sent_on(stream: &[u8]) -> Vec<u8> {
    let (messages, _) = requests(stream, &[stream.len()]);
    let sent = messages.iter().filter(|message| message.head.asked == Asked::Path);
    sent.flat_map(Message::forwarded).collect()
}

/// Inputs of the fuzzer that are such streams.
fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/requests");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}
