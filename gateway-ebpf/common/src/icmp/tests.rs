use zerocopy::{FromBytes, IntoBytes};

use super::{QuoteV4, QuoteV6, is_error_v4, is_error_v6, key_v4, key_v6, translate_v4, translate_v6};
use crate::abi::{FlowKey, FlowValue, TCP, UDP};
use crate::address::Address;
use crate::checksum;
use crate::flow;

fn ip(text: &str) -> Address {
    Address::from_ip(text.parse().unwrap())
}

/// The client's entry of a flow in the given family.
fn flow_entry(is_v4: bool, proto: u8) -> (FlowKey, FlowValue) {
    let [client, vip, source, backend] = if is_v4 {
        ["198.51.100.7", "192.0.2.1", "10.0.0.1", "10.0.0.2"]
    } else {
        ["2001:db8:1::7", "2001:db8:2::1", "2001:db8:3::1", "2001:db8:3::2"]
    };
    let key = FlowKey {
        source: ip(client),
        destination: ip(vip),
        source_port_be: 40_000_u16.to_be(),
        destination_port_be: 80_u16.to_be(),
        proto,
        reserved: [0; 3],
    };
    let value = FlowValue {
        source: ip(source),
        destination: ip(backend),
        source_port_be: 12_345_u16.to_be(),
        destination_port_be: 8_080_u16.to_be(),
        ..FlowValue::default()
    };
    (key, value)
}

fn sum(bytes: &[u8]) -> u32 {
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_ne_bytes([pair[0], pair[1]]))).sum();
    (sum & 0xffff) + (sum >> 16)
}

fn quote_v4(key: &FlowKey) -> QuoteV4 {
    let mut bytes = [0; 28];
    bytes[..4].copy_from_slice(&[0x45, 0, 0, 33]);
    bytes[8..10].copy_from_slice(&[61, key.proto]);
    bytes[12..16].copy_from_slice(&key.source.0[12..]);
    bytes[16..20].copy_from_slice(&key.destination.0[12..]);
    let checksum = !u16::try_from(sum(&bytes[..20])).unwrap();
    bytes[10..12].copy_from_slice(&checksum.to_ne_bytes());
    bytes[20..22].copy_from_slice(&key.source_port_be.to_ne_bytes());
    bytes[22..24].copy_from_slice(&key.destination_port_be.to_ne_bytes());
    bytes[24..28].copy_from_slice(&[0, 13, 0x12, 0x34]);
    QuoteV4::read_from_bytes(&bytes).unwrap()
}

fn quote_v6(key: &FlowKey) -> QuoteV6 {
    let mut bytes = [0; 48];
    bytes[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 13, key.proto, 61]);
    bytes[8..24].copy_from_slice(&key.source.0);
    bytes[24..40].copy_from_slice(&key.destination.0);
    bytes[40..42].copy_from_slice(&key.source_port_be.to_ne_bytes());
    bytes[42..44].copy_from_slice(&key.destination_port_be.to_ne_bytes());
    bytes[44..48].copy_from_slice(&[0, 13, 0x12, 0x34]);
    QuoteV6::read_from_bytes(&bytes).unwrap()
}

/// Holds for both directions: the entry found by the quote's key turns the quote into the packet that the entry's
/// mirror had been made of.
#[test]
fn quote_becomes_what_the_receiver_had_sent() {
    for proto in [TCP, UDP] {
        for is_v4 in [true, false] {
            let (key, value) = flow_entry(is_v4, proto);
            let (other_key, other) = (flow::mirror_key(&key, &value), flow::mirror(&key, &value));
            for (original, found, entry) in [(key, other_key, other), (other_key, key, value)] {
                // As it left us: the packet that would be answered by a packet with key `found`.
                let sent = FlowKey {
                    source: found.destination,
                    destination: found.source,
                    source_port_be: found.destination_port_be,
                    destination_port_be: found.source_port_be,
                    ..found
                };
                let (before, after, difference) = if is_v4 {
                    let mut quote = quote_v4(&sent);
                    assert_eq!(key_v4(&quote), Some(found));
                    let before = sum(quote.as_bytes());
                    let difference = translate_v4(&mut quote, &entry);
                    assert_eq!(sum(&quote.as_bytes()[..20]), 0xffff, "checksum of the quoted header");
                    let expected = quote_v4(&original);
                    assert_eq!(quote.ip, expected.ip);
                    assert_eq!(quote.ports.source_port_be, original.source_port_be);
                    assert_eq!(quote.ports.destination_port_be, original.destination_port_be);
                    (before, sum(quote.as_bytes()), difference)
                } else {
                    let mut quote = quote_v6(&sent);
                    assert_eq!(key_v6(&quote), Some(found));
                    let before = sum(quote.as_bytes());
                    let difference = translate_v6(&mut quote, &entry);
                    assert_eq!(quote.ip, quote_v6(&original).ip);
                    assert_eq!(quote.ports.source_port_be, original.source_port_be);
                    (before, sum(quote.as_bytes()), difference)
                };
                let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
                let checksum = |sum| !u16::try_from(fold(fold(sum))).unwrap();
                assert_eq!(checksum::apply(checksum(before), difference), checksum(after));
            }
        }
    }
}

#[test]
fn quoted_datagram_without_checksum_stays_without() {
    let (key, value) = flow_entry(true, UDP);
    let mut quote = quote_v4(&FlowKey { source: value.source, destination: value.destination, ..key });
    quote.ports.fourth = 0;
    translate_v4(&mut quote, &flow::mirror(&key, &value));
    assert_eq!(quote.ports.fourth, 0);
}

#[test]
fn quote_without_ports_has_no_key() {
    let (key, _) = flow_entry(true, UDP);
    let quote = quote_v4(&key);
    let later = crate::parse::Ipv4Header { fragment_be: 0x2001_u16.to_be(), ..quote.ip };
    assert_eq!(key_v4(&QuoteV4 { ip: later, ..quote }), None);
    let options = crate::parse::Ipv4Header { version_length: 0x46, ..quote.ip };
    assert_eq!(key_v4(&QuoteV4 { ip: options, ..quote }), None);
    assert_eq!(key_v4(&quote_v4(&FlowKey { proto: 1, ..key })), None);
    let (key, _) = flow_entry(false, UDP);
    assert_eq!(key_v6(&quote_v6(&FlowKey { proto: 44, ..key })), None);
}

#[test]
fn only_errors_that_quote_are_errors() {
    for icmp_type in 0..=u8::MAX {
        assert_eq!(is_error_v4(icmp_type), [3, 11, 12].contains(&icmp_type));
        assert_eq!(is_error_v6(icmp_type), (1..=4).contains(&icmp_type));
    }
}
