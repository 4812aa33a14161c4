//! What must hold whatever bytes come from the network. One function per parser, which panics where it does not hold.
//!
//! The fuzzer and the replay of its corpora call the same functions, so a name in [`TARGETS`] is all that a new target
//! needs beside a folder in `fuzz/corpus`. None of them reads a clock or draws numbers: the same bytes take the same way.

mod chunked;
mod client_hello;
mod crossing;
mod host;
mod path;
mod proxy_protocol;
mod requests;
mod responses;

/// A parser and what must hold of it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its folder in `fuzz/corpus`.
    pub name: &'static str,
    pub run: fn(&[u8]),
}

pub const TARGETS: &[Target] = &[
    Target { name: "chunked", run: chunked::run },
    Target { name: "client_hello", run: client_hello::run },
    Target { name: "h2_requests", run: crossing::requests },
    Target { name: "h2_responses", run: crossing::responses },
    Target { name: "host", run: host::run },
    Target { name: "path", run: path::run },
    Target { name: "proxy_protocol", run: proxy_protocol::run },
    Target { name: "requests", run: requests::run },
    Target { name: "responses", run: responses::run },
];

impl Target {
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }
}

/// Ways in which `bytes` may arrive, each as the ends of its pieces: at once, byte by byte, and at places drawn from the
/// bytes themselves.
fn arrivals(bytes: &[u8]) -> [Vec<usize>; 3] {
    let n = bytes.len();
    // FNV-1a.
    let mut state = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    let mut drawn: Vec<usize> = (0..4)
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            usize::try_from(state >> 40).expect("24 bits fit") % (n + 1)
        })
        .collect();
    drawn.push(n);
    drawn.sort_unstable();
    [vec![n], (1..=n).collect(), drawn]
}

/// A head that one reader would end before another: a control character where none may stand.
fn assert_is_lines(head: &[u8]) {
    let mut before = 0;
    for (at, byte) in head.iter().enumerate() {
        let after = head.get(at + 1).copied();
        let is_sound = match byte {
            b'\r' => after == Some(b'\n'),
            b'\n' => before == b'\r',
            b'\t' => true,
            _ => !byte.is_ascii_control(),
        };
        assert!(is_sound, "byte {at} of {}", head.escape_ascii());
        before = *byte;
    }
}
