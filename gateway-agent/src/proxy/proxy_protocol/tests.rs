use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use super::parse::checksum_without;
use super::{Ends, HEADER_BYTES_MAX, Header, Invalid, Parser, encode};
use crate::snapshot::ProxyVersion;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn parse(bytes: &[u8]) -> Result<(usize, Option<Header>), Invalid> {
    Parser::default().feed(bytes)
}

fn ends(client: &str, local: &str) -> Ends {
    Ends { client: client.parse().unwrap(), local: local.parse().unwrap() }
}

/// A header of version 2.
fn block(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family], &length, rest].concat()
}

fn addition(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap().to_be_bytes();
    [&[kind], length.as_slice(), value].concat()
}

/// 192.0.2.1:4000 to 192.0.2.2:443.
const TCP4: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 0x0f, 0xa0, 1, 0xbb];

#[test]
fn line_names_the_client() {
    let v6 = "PROXY TCP6 2001:db8::1 2001:DB8:0:0:0:0:0:2 65535 0\r\n";
    for (line, expected) in [
        ("PROXY TCP4 192.0.2.1 192.0.2.2 4000 443\r\n", ends("192.0.2.1:4000", "192.0.2.2:443")),
        (v6, ends("[2001:db8::1]:65535", "[2001:db8::2]:0")),
        ("PROXY TCP6 ::ffff:192.0.2.1 ::ffff:c000:202 1 2\r\n", ends("192.0.2.1:1", "192.0.2.2:2")),
    ] {
        assert_eq!(parse(line.as_bytes()), Ok((line.len(), Some(Header::Proxied(expected)))), "{line}");
    }
}

#[test]
fn line_of_an_unknown_client_may_hold_anything_before_its_end() {
    // The second is the longest line that there may be.
    let longest = "PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535";
    let padded = format!("{longest:<105}\r\n");
    for line in ["PROXY UNKNOWN\r\n", &padded, "PROXY UNKNOWN \0 \u{7f}\r\n"] {
        assert_eq!(parse(line.as_bytes()), Ok((line.len(), Some(Header::Own))), "{line:?}");
    }
    assert_eq!(parse(format!("{longest:<106}\r\n").as_bytes()), Err(Invalid::TooLong));
}

#[test]
fn line_in_any_other_form_is_refused() {
    let address = |text: &str| format!("PROXY TCP4 {text} 192.0.2.2 1 2\r\n");
    let port = |text: &str| format!("PROXY TCP4 192.0.2.1 192.0.2.2 {text} 2\r\n");
    for (line, expected) in [
        ("GET / HTTP/1.1\r\n".into(), Invalid::NoHeader),
        ("PROXX".into(), Invalid::NoHeader),
        ("proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n".into(), Invalid::NoHeader),
        ("PROXY\tTCP4 192.0.2.1 192.0.2.2 1 2\r\n".into(), Invalid::NoHeader),
        ("PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n".into(), Invalid::Fields),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n".into(), Invalid::Line),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\rx".into(), Invalid::Line),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n".into(), Invalid::Fields),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n".into(), Invalid::Fields),
        ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n".into(), Invalid::Fields),
        ("PROXY \r\n".into(), Invalid::Fields),
        ("PROXY UNKNOWNS\r\n".into(), Invalid::Fields),
        ("PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n".into(), Invalid::Family),
        ("PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n".into(), Invalid::Family),
        (address("2001:db8::1"), Invalid::Address),
        (address("192.0.2.01"), Invalid::Address),
        (address("192.0.2"), Invalid::Address),
        (address("3221225985"), Invalid::Address),
        ("PROXY TCP6 192.0.2.1 ::1 1 2\r\n".into(), Invalid::Address),
        ("PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n".into(), Invalid::Address),
        (port(""), Invalid::Port),
        (port("+1"), Invalid::Port),
        (port("01"), Invalid::Port),
        (port("00"), Invalid::Port),
        (port("65536"), Invalid::Port),
        (port("-1"), Invalid::Port),
        (port("0x1"), Invalid::Port),
    ] {
        assert_eq!(parse(line.as_bytes()), Err(expected), "{line:?}");
    }
}

#[test]
fn block_names_the_client() {
    let v4 = ends("192.0.2.1:4000", "192.0.2.2:443");
    let mut v6: Vec<u8> = [[0; 15].as_slice(), &[1], &[0; 15], &[2]].concat();
    v6.extend([0, 1, 0, 2]);
    let mapped = [[0; 10].as_slice(), &[255, 255, 192, 0, 2, 1], &[0; 16], &[0, 1, 0, 2]].concat();
    let more = [TCP4.as_slice(), &addition(0x04, b""), &addition(0xea, &[1; 300])].concat();
    for (bytes, expected) in [
        (block(0x21, 0x11, &TCP4), v4),
        (block(0x21, 0x11, &more), v4),
        (block(0x21, 0x21, &v6), ends("[::1]:1", "[::2]:2")),
        (block(0x21, 0x21, &mapped), ends("192.0.2.1:1", "[::]:2")),
    ] {
        assert_eq!(parse(&bytes), Ok((bytes.len(), Some(Header::Proxied(expected)))), "{bytes:?}");
    }
}

#[test]
fn block_of_the_sender_itself_or_of_a_client_without_address_changes_nothing() {
    for bytes in [
        block(0x20, 0x00, b""),
        block(0x20, 0x11, &TCP4),
        // Nothing in it counts, not even what is no family.
        block(0x20, 0xff, b"anything"),
        block(0x21, 0x00, b""),
        block(0x21, 0x00, b"anything"),
        block(0x21, 0x31, &[b'/'; 216]),
        block(0x21, 0x31, &[[b'/'; 216].as_slice(), &addition(1, b"h2")].concat()),
    ] {
        assert_eq!(parse(&bytes), Ok((bytes.len(), Some(Header::Own))), "{bytes:?}");
    }
}

#[test]
fn block_in_any_other_form_is_refused() {
    let too_long = [SIGNATURE, &[0x21, 0x11], &0xffff_u16.to_be_bytes()].concat();
    let with = |rest: &[u8]| block(0x21, 0x11, &[TCP4.as_slice(), rest].concat());
    for (bytes, expected) in [
        (b"\r\n\r\n\0\r\nQUIT\r".to_vec(), Invalid::NoHeader),
        (block(0x11, 0x11, &TCP4), Invalid::Version),
        (block(0x31, 0x11, &TCP4), Invalid::Version),
        (block(0x22, 0x11, &TCP4), Invalid::Command),
        (block(0x21, 0x10, &TCP4), Invalid::Family),
        (block(0x21, 0x12, &TCP4), Invalid::Family),
        (block(0x21, 0x01, &TCP4), Invalid::Family),
        (block(0x21, 0x41, &TCP4), Invalid::Family),
        (block(0x21, 0x11, &TCP4[..11]), Invalid::Truncated),
        (block(0x21, 0x21, &[0; 35]), Invalid::Truncated),
        (block(0x21, 0x31, &[0; 215]), Invalid::Truncated),
        (with(&[4]), Invalid::Truncated),
        (with(&[4, 0]), Invalid::Truncated),
        (with(&[4, 0, 1]), Invalid::Truncated),
        (with(&addition(0x03, &[0; 4])), Invalid::Checksum),
        (with(&addition(0x03, &[0; 3])), Invalid::Checksum),
        (too_long, Invalid::TooLong),
    ] {
        assert_eq!(parse(&bytes), Err(expected), "{bytes:?}");
    }
}

#[test]
fn checksum_is_verified_where_there_is_one() {
    // The value that RFC 3720 gives for 32 bytes of zeros.
    assert_eq!(checksum_without(&[0; 32], 0), 0x8a91_36aa);
    let rest = [TCP4.as_slice(), &addition(0x03, &[0; 4]), &addition(0x02, b"a.example")].concat();
    let mut bytes = block(0x21, 0x11, &rest);
    let at = 16 + 12 + 3;
    let sum = checksum_without(&bytes, at);
    bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    assert!(matches!(parse(&bytes), Ok((_, Some(Header::Proxied(_))))));
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    assert_eq!(parse(&bytes), Err(Invalid::Checksum));
}

#[test]
fn server_name_goes_along_in_version_2() {
    let about = ends("192.0.2.1:4000", "192.0.2.2:443");
    let bytes = encode(ProxyVersion::V2, about, "a.example");
    assert_eq!(bytes, block(0x21, 0x11, &[TCP4.as_slice(), &addition(0x02, b"a.example")].concat()));
    let line = encode(ProxyVersion::V1, about, "a.example");
    assert_eq!(line, b"PROXY TCP4 192.0.2.1 192.0.2.2 4000 443\r\n");
    let long = "a".repeat(256);
    assert_eq!(encode(ProxyVersion::V2, about, &long), encode(ProxyVersion::V2, about, ""));
}

fn address() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip.to_canonical(), port))
}

fn version() -> impl Strategy<Value = ProxyVersion> {
    prop_oneof![Just(ProxyVersion::V1), Just(ProxyVersion::V2)]
}

/// Bytes that get far: a beginning of a header, and anything.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let head = prop_oneof![
        Just(Vec::new()),
        Just(b"PROXY ".to_vec()),
        Just(b"PROXY TCP4 192.0.2.1 ".to_vec()),
        Just(b"PROXY UNKNOWN".to_vec()),
        (prop_oneof![Just(0x20), Just(0x21), any::<u8>()], any::<u8>(), 0..600_u16).prop_map(
            |(command, family, length)| [SIGNATURE, &[command, family], &length.to_be_bytes()].concat()
        ),
    ];
    let rest = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..700),
        proptest::collection::vec(prop_oneof![Just(b' '), Just(b'\r'), Just(b'\n'), Just(b'1')], 0..120),
    ];
    (head, rest).prop_map(|(head, rest)| [head, rest].concat())
}

/// All of it, in pieces of this size.
fn in_pieces(bytes: &[u8], size: usize) -> Result<(usize, Option<Header>), Invalid> {
    let (mut parser, mut n_taken) = (Parser::default(), 0);
    for piece in bytes.chunks(size) {
        let (n, header) = parser.feed(piece)?;
        n_taken += n;
        if header.is_some() {
            return Ok((n_taken, header));
        }
        assert_eq!(n, piece.len(), "all of a piece is taken where more is wanted");
    }
    Ok((n_taken, None))
}

proptest! {
    #[test]
    fn what_is_written_is_read_and_every_prefix_wants_more(
        client in address(), local in address(), version in version(),
        authority in "[a-z.]{0,30}", after in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let header = encode(version, Ends { client, local }, &authority);
        for length in 0..header.len() {
            prop_assert_eq!(parse(&header[..length]), Ok((length, None)));
        }
        let whole = [header.as_slice(), &after].concat();
        let expected = Ok((header.len(), Some(Header::Proxied(Ends { client, local }))));
        prop_assert_eq!(parse(&whole), expected);
        prop_assert_eq!(in_pieces(&whole, 1), expected);
    }

    #[test]
    fn how_bytes_are_cut_makes_no_difference(bytes in hostile(), size in 1..40_usize) {
        let whole = parse(&bytes);
        prop_assert_eq!(in_pieces(&bytes, size), whole);
        if let Ok((n_taken, header)) = whole {
            prop_assert!(n_taken <= HEADER_BYTES_MAX.min(bytes.len()));
            prop_assert!(header.is_some() || n_taken == bytes.len());
        }
    }
}
