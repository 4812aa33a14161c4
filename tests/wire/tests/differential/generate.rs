//! Streams of requests, most of them well-formed but for one place.
//!
//! Always the same for one seed, which is printed; `WIRE_SEED` sets another.

pub(crate) struct Generator {
    seed: u64,
    state: u64,
}

const METHODS: &[&str] = &["GET", "POST", "HEAD", "PUT", "OPTIONS", "DELETE", "PATCH", "M-SEARCH", "get"];
const TARGETS: &[&str] = &[
    "/",
    "/a/b",
    "/a?b=c",
    "/a/../b",
    "/a/./b/",
    "/%61/b%20c",
    "/a%2Fb",
    "//a//b",
    "/a;b=c",
    "/?",
    "/a?x=/../",
    "http://a.example/x?y",
    "http://b.example:8080",
    "https://a.example/%7euser",
    "*",
    "/caf\u{e9}",
    "/a|b",
    "/a\"b",
    "/:a",
    "/a:b",
    "/~x",
    "/..",
    "/%2e%2e/x",
    "/a%zz",
    "HTTP://A.example/",
    "/a[b]",
    "/{a}",
    "/a@b",
    "/a//../b",
    "/^`",
];
const VERSIONS: &[&str] = &["HTTP/1.1", "HTTP/1.0", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0"];
const HOSTS: &[&str] = &[
    "a.example",
    "A.Example:8080",
    "[2001:db8::1]:80",
    "b.example.",
    "",
    "a,b",
    "u@a",
    "a_b",
    "10.0.0.1",
    "xn--a",
    "a%41",
    "a b",
    "a/b",
    "a:",
    "-",
    "a~b",
    "a+b",
];
const FIELDS: &[&str] = &[
    "Accept: */*",
    "X-A: 1",
    "x-a:2",
    "X-A:  spaced  ",
    "X-Empty:",
    "Cookie: a=b; c=d",
    "Cookie: e=f",
    "User-Agent: x/1 (y)",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: x-a, te",
    "TE: trailers",
    "Trailer: X-Sum",
    "Keep-Alive: 5",
    "Expect: 100-continue",
    "Upgrade: websocket",
    "X-Forwarded-For: 10.0.0.1",
    "Forwarded: for=10.0.0.1",
    "X_Under: 1",
    "X-Obs: caf\u{e9}",
    "X-Tab: a\tb",
    "!#$%&'*+-.^_`|~: odd",
    "Cache-Control: no-cache",
    "Via: 1.1 x",
    "Range: bytes=0-",
    "Accept-Encoding: gzip",
    "Content-Type: text/plain",
    "Authorization: Basic YTpi",
    "If-Match: \"a\", \"b\"",
];
/// What frames a body of five bytes, rightly or not.
const FRAMINGS: &[&str] = &[
    "Content-Length: 5",
    "content-length:5",
    "Content-Length: 05",
    "Content-Length: +5",
    "Content-Length: 5, 5",
    "Content-Length: 5\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 0x5",
    "Content-Length: -5",
    "Content-Length:",
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Content-Length : 5",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: \"chunked\"",
    "Content_Length: 5",
    "Transfer-Encoding:\r\n chunked",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding: Chunked",
];
const CHUNK_LINES: &[&str] =
    &["5", "05", "5;a=b", "5;a=\"b;c\"", "5 ", " 5", "5;", "5\t", "+5", "0x5", "5;a\tb", "000005", "5 ;a"];
const LAST_CHUNKS: &[&str] = &[
    "0\r\n\r\n",
    "0\r\nX-Sum: 1\r\n\r\n",
    "00\r\n\r\n",
    "0;x\r\n\r\n",
    "0\r\nX-Sum: 1\r\nX-B:2\r\n\r\n",
    "0\r\nA : b\r\n\r\n",
    "0\r\n",
    "0\r\nContent-Length: 5\r\n\r\n",
    "0\n\n",
];
/// Bytes that readers disagree about.
const DAMAGE: &[u8] = b"\r\n\0 \t:;,\x0b\x0c\x7f\x80\xff\"\\/#%?&=\x1b0aA-_";

impl Generator {
    pub(crate) fn from_environment() -> Self {
        let seed = std::env::var("WIRE_SEED").ok().map(|seed| seed.parse().expect("WIRE_SEED is a number"));
        let seed = seed.unwrap_or(9112);
        Self { seed, state: seed }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// One to three requests, and perhaps a damage.
    pub(crate) fn stream(&mut self) -> Vec<u8> {
        let mut stream = Vec::new();
        for _ in 0..=self.below(3) {
            self.request(&mut stream);
        }
        for _ in 0..self.pick(&[0, 0, 0, 1, 1, 2]) {
            let at = self.below(stream.len());
            match self.below(4) {
                0 => drop(stream.remove(at)),
                1 => stream.insert(at, self.pick(DAMAGE)),
                2 => stream[at] = self.pick(DAMAGE),
                _ => stream.insert(at, stream[at]),
            }
        }
        stream
    }

    fn request(&mut self, out: &mut Vec<u8>) {
        let method = self.often(METHODS);
        let target = self.often(TARGETS);
        let version = self.often(VERSIONS);
        out.extend(format!("{method} {target} {version}\r\n").bytes());
        let mut lines = vec![format!("{}: {}", self.often(&["Host", "host", "HOST"]), self.often(HOSTS))];
        for _ in 0..self.below(5) {
            lines.push(self.pick(FIELDS).to_owned());
        }
        let body = self.body(&mut lines);
        if self.below(20) == 0 {
            lines.push("Host: other".to_owned());
        }
        let n_lines = lines.len();
        lines.rotate_left(self.below(n_lines));
        for line in lines {
            // What is beyond ASCII is one byte each, as ISO 8859-1 has it.
            out.extend(line.chars().map(|char| u8::try_from(u32::from(char)).expect("of ISO 8859-1")));
            out.extend(b"\r\n");
        }
        out.extend(b"\r\n");
        out.extend(body);
    }

    fn body(&mut self, lines: &mut Vec<String>) -> Vec<u8> {
        match self.below(6) {
            0..=2 => Vec::new(),
            3 => {
                lines.push("Content-Length: 5".to_owned());
                b"hello".to_vec()
            }
            4 => {
                lines.push("Transfer-Encoding: chunked".to_owned());
                self.chunks()
            }
            _ => {
                lines.push(self.pick(FRAMINGS).to_owned());
                if self.below(2) == 0 { b"hello".to_vec() } else { self.chunks() }
            }
        }
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        for _ in 0..self.below(3) {
            body.extend(format!("{}\r\nhello\r\n", self.often(CHUNK_LINES)).bytes());
        }
        body.extend(self.often(LAST_CHUNKS).bytes());
        body
    }

    /// The first, which is the plain one, mostly: a stream has many places that may be odd.
    fn often<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        if self.below(4) > 0 { choices[0] } else { self.pick(choices) }
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// SplitMix64.
    fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % bound as u64).expect("below a usize")
    }
}
