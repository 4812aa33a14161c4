//! The other implementation, as a process that reads streams and says what it has read.

use std::io::{BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// What became of one stream.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub requests: Vec<Request>,
    pub statuses: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Request {
    pub method: Vec<u8>,
    pub uri: Vec<u8>,
    pub host: Vec<u8>,
    pub path: Vec<u8>,
    pub query: Vec<u8>,
    pub body: Vec<u8>,
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Peer {
    pub(crate) fn start() -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peer");
        let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wire-peer");
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(&binary).arg(".").current_dir(source);
        // It needs nothing but the standard library.
        build.env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local").env("GOWORK", "off");
        let status = build.status().expect("cannot start `go`: install Go 1.24 or later (https://go.dev/dl)");
        assert!(status.success(), "`go build` of tests/wire/peer failed");
        let mut child = Command::new(binary).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub(crate) fn read(&mut self, streams: &[Vec<u8>]) -> Vec<Read> {
        let input = self.input.as_mut().expect("not yet dropped");
        let output = &mut self.output;
        std::thread::scope(|scope| {
            // Aside, for the peer answers while it is still being asked.
            scope.spawn(move || {
                for stream in streams {
                    let length = u32::try_from(stream.len()).unwrap().to_be_bytes();
                    input.write_all(&length).unwrap();
                    input.write_all(stream).unwrap();
                }
                input.flush().unwrap();
            });
            streams.iter().map(|_| read_one(output)).collect()
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Its input ends.
        self.input = None;
        if self.child.wait().is_err() && !std::thread::panicking() {
            panic!("the peer did not end");
        }
    }
}

fn read_one(output: &mut impl std::io::BufRead) -> Read {
    let mut read = Read::default();
    loop {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "the peer has ended");
        let mut words = line.split_whitespace();
        match words.next() {
            Some("request") => read.requests.push(request(words)),
            Some("end") => {
                read.statuses = words.map(str::to_owned).collect();
                return read;
            }
            other => panic!("the peer says {other:?}"),
        }
    }
}

fn request<'a>(words: impl Iterator<Item = &'a str>) -> Request {
    let mut request = Request::default();
    let mut words = words.take_while(|word| *word != "!");
    let Request { method, uri, host, path, query, body, fields } = &mut request;
    for part in [method, uri, host, path, query, body] {
        *part = bytes(words.next().expect("six parts"));
    }
    for word in words {
        let (name, value) = word.split_once('=').expect("a field");
        fields.push((bytes(name), bytes(&format!("x{value}"))));
    }
    request
}

fn bytes(word: &str) -> Vec<u8> {
    let digits = word.strip_prefix('x').expect("a word in hexadecimal");
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}
