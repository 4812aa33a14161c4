use proptest::prelude::*;

use super::super::maker::{Maker, handshake, records, vector8, vector16};
use super::{HELLO_BYTES, Hello, Invalid, Parser, Progress};

fn whole(wire: &[u8]) -> Progress {
    Parser::default().feed(wire)
}

fn in_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Progress {
    let mut parser = Parser::default();
    for piece in pieces {
        match parser.feed(piece) {
            Progress::NeedMore => {}
            answer => return answer,
        }
    }
    Progress::NeedMore
}

fn name(name: &str) -> Progress {
    Progress::Hello(Hello { server_name: Some(name.into()) })
}

fn shapes() -> Vec<Maker> {
    let plain = Maker::default();
    vec![
        plain.clone(),
        Maker { name: None, ..plain.clone() },
        Maker { post_quantum: true, ..plain.clone() },
        Maker { post_quantum: true, record_bytes: 100, ..plain.clone() },
        Maker { record_bytes: 1, ..plain.clone() },
        Maker { post_quantum: true, record_bytes: 1, ..plain.clone() },
        Maker { encrypted_hello: true, post_quantum: true, grease: true, ..plain.clone() },
        Maker { pad_to: 4 * 1024, ..plain.clone() },
        Maker { pad_to: 16 * 1024, post_quantum: true, ..plain },
    ]
}

// O01, O02: the answer does not depend on where the bytes are cut, nor on the records.
#[test]
fn hello_cut_at_every_byte_gives_the_same_answer_as_whole() {
    for shape in shapes() {
        let wire = shape.wire();
        let answer = whole(&wire);
        let expected = shape.name.as_ref().map(|_| "app.example.com".to_owned());
        assert_eq!(answer, Progress::Hello(Hello { server_name: expected }), "{shape:?}");
        assert_eq!(in_pieces(wire.chunks(1)), answer, "{shape:?}");
        for cut in 1..wire.len() {
            let (head, tail) = wire.split_at(cut);
            assert_eq!(whole(head), Progress::NeedMore, "{shape:?} cut at {cut}");
            assert_eq!(in_pieces([head, tail]), answer, "{shape:?} cut at {cut}");
        }
    }
}

#[test]
fn bytes_after_the_hello_change_nothing() {
    let mut wire = Maker::default().wire();
    wire.extend_from_slice(b"early data of any kind");
    assert_eq!(whole(&wire), name("app.example.com"));
}

// O03: host names compare without regard to case, and a trailing dot is the same name.
#[test]
fn name_is_lowered_and_loses_its_trailing_dot() {
    assert_eq!(whole(&Maker::named("App.EXAMPLE.com").wire()), name("app.example.com"));
    assert_eq!(whole(&Maker::named("app.example.com.").wire()), name("app.example.com"));
    assert_eq!(whole(&Maker::named("_x.a-b.example").wire()), name("_x.a-b.example"));
}

#[test]
fn name_that_is_no_host_name_is_invalid() {
    let long_label = format!("{}.com", "a".repeat(64));
    let long_name = format!("{}com", "abc.".repeat(63));
    for bad in ["", ".", "a..b", ".a", "a b", "a\0b", "a/b", "ä.de", "a..", &long_label, &long_name] {
        assert_eq!(whole(&Maker::named(bad).wire()), Progress::Invalid(Invalid::ServerName), "{bad:?}");
    }
    assert_eq!(
        whole(&Maker::named(&format!("{}b", "abc.".repeat(63))).wire()),
        name(&format!("{}b", "abc.".repeat(63)))
    );
}

#[test]
fn two_names_are_invalid() {
    let mut list = vec![0];
    list.extend(vector16(b"a.com"));
    list.push(0);
    list.extend(vector16(b"b.com"));
    let two_names = Maker { name: None, extra: vec![(0, vector16(&list))], ..Maker::default() };
    assert_eq!(whole(&two_names.wire()), Progress::Invalid(Invalid::ServerName));

    let mut entry = vec![0];
    entry.extend(vector16(b"b.com"));
    let two_extensions = Maker { extra: vec![(0, vector16(&entry))], ..Maker::default() };
    assert_eq!(whole(&two_extensions.wire()), Progress::Invalid(Invalid::Malformed));
}

#[test]
fn hello_without_extensions_names_no_server() {
    let mut body = vec![3, 1];
    body.extend([0; 32]);
    body.extend(vector8(&[]));
    body.extend(vector16(&[0, 0x2f]));
    body.extend(vector8(&[0]));
    let wire = records(&handshake(1, &body), 1 << 14);
    assert_eq!(whole(&wire), Progress::Hello(Hello { server_name: None }));
}

// O04: plaintext on a TLS port is known by its first byte, without waiting for the deadline.
#[test]
fn what_is_not_tls_fails_at_once() {
    let cases: &[(&[u8], Invalid)] = &[
        (b"G", Invalid::NotTls),
        (b"\0\0\0\x08\x04\xd2\x16\x2f", Invalid::NotTls),
        (b"\x16\x02", Invalid::NotTls),
        (b"\x80\x2e\x01\x00\x02", Invalid::Ssl2),
        (b"\x15\x03\x01\x00\x02\x02\x28", Invalid::Alert),
        (b"\x16\x03\x01\x00\x00", Invalid::Record),
        (b"\x16\x03\x01\x40\x01", Invalid::Record),
        (b"\x16\x03\x03\x00\x04\x02", Invalid::NotClientHello),
        // A fragment, then a record of another type.
        (b"\x16\x03\x01\x00\x01\x01\x17", Invalid::Record),
        (b"\x16\x03\x01\x00\x01\x01\x16\x03\x01\x00\x00", Invalid::Record),
    ];
    for (wire, invalid) in cases {
        assert_eq!(whole(wire), Progress::Invalid(*invalid), "{wire:x?}");
        assert_eq!(in_pieces(wire.chunks(1)), Progress::Invalid(*invalid), "{wire:x?}");
    }
}

#[test]
fn hello_above_the_bound_is_refused_by_its_length_alone() {
    let largest = Maker { pad_to: HELLO_BYTES + 4, ..Maker::default() };
    assert_eq!(largest.message().len(), HELLO_BYTES + 4);
    assert_eq!(whole(&largest.wire()), name("app.example.com"));
    let too_long = Maker { pad_to: HELLO_BYTES + 5, ..Maker::default() };
    assert_eq!(whole(too_long.wire().get(..9).expect("headers")), Progress::Invalid(Invalid::TooLong));
}

#[test]
fn every_truncated_body_is_malformed_or_nameless() {
    let message = Maker { encrypted_hello: true, ..Maker::default() }.message();
    let body = message.get(4..).expect("body");
    for length in 0..body.len() {
        let wire = records(&handshake(1, body.get(..length).expect("prefix")), 1 << 14);
        match whole(&wire) {
            Progress::Invalid(Invalid::Malformed) => {}
            Progress::Hello(Hello { server_name: None }) => {
                // The one prefix that is a hello of its own: without extensions.
                assert_eq!(length, 2 + 32 + 33 + 8 + 2);
            }
            other => panic!("{length}: {other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_give_one_answer(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        cut in 1_usize..50,
    ) {
        prop_assert_eq!(in_pieces(bytes.chunks(cut)), whole(&bytes));
    }

    #[test]
    fn damaged_hello_gives_one_answer(
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in 1_usize..200,
        record_bytes in 1_usize..400,
    ) {
        let mut wire = Maker { record_bytes, encrypted_hello: true, ..Maker::default() }.wire();
        let at = at.index(wire.len());
        wire[at] = value;
        prop_assert_eq!(in_pieces(wire.chunks(cut)), whole(&wire));
    }

    #[test]
    fn any_host_name_is_found(host in "[a-zA-Z0-9_-]{1,20}(\\.[a-zA-Z0-9-]{1,20}){0,5}", cut in 1_usize..100) {
        let wire = Maker::named(&host).wire();
        prop_assert_eq!(in_pieces(wire.chunks(cut)), name(&host.to_ascii_lowercase()));
    }
}
