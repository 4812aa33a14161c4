use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::{
    ETHERNET_LENGTH, FragmentHeader, Ipv4Header, Ipv6Header, Part, TcpHeader, UdpHeader, has_fragment_header,
    ipv4, ipv6, tcp_is_sound, udp_is_sound,
};
use crate::abi::{TCP, UDP};
use crate::address::Address;

fn v4(total_length: u16, fragment: u16) -> Ipv4Header {
    Ipv4Header {
        version_length: 0x45,
        service: 0,
        total_length_be: total_length.to_be(),
        identification_be: 7,
        fragment_be: fragment.to_be(),
        hop_word: u32::from_ne_bytes([64, UDP, 0, 0]),
        source_be: u32::from_ne_bytes([192, 0, 2, 1]),
        destination_be: u32::from_ne_bytes([198, 51, 100, 7]),
    }
}

fn v6(payload_length: u16, next_header: u8) -> Ipv6Header {
    let [high, low] = payload_length.to_be_bytes();
    Ipv6Header {
        version_class_label: u32::from_ne_bytes([0x60, 0, 0, 0]),
        hop_word: u32::from_ne_bytes([high, low, next_header, 63]),
        source: Address([1; 16]),
        destination: Address([2; 16]),
    }
}

#[test]
fn ipv4_packet_is_read_and_padding_left_out() {
    let packet = ipv4(&v4(29, 0), 60).unwrap();
    assert_eq!(packet.key.source.to_ip(), core::net::IpAddr::from([192, 0, 2, 1]));
    assert_eq!(packet.key.destination.to_ip(), core::net::IpAddr::from([198, 51, 100, 7]));
    assert_eq!((packet.key.proto, packet.hop_limit()), (UDP, 64));
    assert_eq!((packet.l4_offset, packet.l4_length), (34, 9));
    assert_eq!(packet.part, Part::Whole);
}

#[test]
fn ipv6_packet_is_read() {
    let packet = ipv6(&v6(9, TCP), None, 70).unwrap();
    assert_eq!((packet.key.source, packet.key.destination), (Address([1; 16]), Address([2; 16])));
    assert_eq!((packet.key.proto, packet.hop_limit()), (TCP, 63));
    assert_eq!((packet.l4_offset, packet.l4_length), (54, 9));
}

#[test]
fn ipv4_options_and_other_versions_are_refused() {
    for version_length in [0x44, 0x46, 0x4f, 0x65, 0x05] {
        assert_eq!(ipv4(&Ipv4Header { version_length, ..v4(29, 0) }, 60), None);
    }
}

#[test]
fn length_that_does_not_fit_the_frame_is_refused() {
    assert_eq!(ipv4(&v4(19, 0), 60), None);
    assert_eq!(ipv4(&v4(47, 0), 60), None);
    assert!(ipv4(&v4(46, 0), 60).is_some());
    assert_eq!(ipv4(&v4(29, 0), 13), None);
    assert_eq!(ipv6(&v6(17, UDP), None, 70), None);
    assert!(ipv6(&v6(16, UDP), None, 70).is_some());
    assert_eq!(ipv6(&v6(16, UDP), None, 53), None);
}

/// Linux states 0 for a coalesced packet that is longer than the field can say.
#[test]
fn length_of_zero_is_taken_for_a_coalesced_packet_only() {
    assert_eq!(ipv4(&v4(0, 0), 1500), None);
    assert_eq!(ipv4(&v4(0, 0), 100_000).map(|packet| packet.l4_length), Some(100_000 - 34));
    assert_eq!(ipv6(&v6(0, TCP), None, 100_000).map(|packet| packet.l4_length), Some(100_000 - 54));
}

#[test]
fn fragments_are_told_apart() {
    let part = |fragment| ipv4(&v4(29, fragment), 60).unwrap().part;
    assert_eq!(part(0x4000), Part::Whole);
    assert_eq!(part(0x2000), Part::First);
    assert_eq!(part(0x2001), Part::Later);
    assert_eq!(part(0x0001), Part::Later);
    let header = v6(16, 44);
    assert!(has_fragment_header(&header));
    let part = |offset: u16| {
        let fragment =
            FragmentHeader { next_header: UDP, reserved: 0, offset_be: offset.to_be(), identification: 9 };
        let packet = ipv6(&header, Some(&fragment), 70).unwrap();
        assert_eq!((packet.l4_offset, packet.l4_length, packet.key.proto), (62, 8, UDP));
        packet.part
    };
    assert_eq!(part(0), Part::Whole);
    assert_eq!(part(1), Part::First);
    assert_eq!(part(8 | 1), Part::Later);
    assert_eq!(part(8), Part::Later);
}

#[test]
fn transport_header_must_fit_the_packet() {
    let mut packet = ipv4(&v4(20 + 40, 0), 100).unwrap();
    packet.key.proto = TCP;
    let tcp = |data_offset| TcpHeader { data_offset, ..TcpHeader::default() };
    assert!(tcp_is_sound(&tcp(5 << 4), &packet));
    assert!(tcp_is_sound(&tcp(10 << 4), &packet));
    assert!(!tcp_is_sound(&tcp(11 << 4), &packet));
    assert!(!tcp_is_sound(&tcp(4 << 4), &packet));
    packet.key.proto = UDP;
    let udp = |length: u16| UdpHeader { length_be: length.to_be(), ..UdpHeader::default() };
    assert!(udp_is_sound(&udp(8), &packet));
    assert!(udp_is_sound(&udp(40), &packet));
    assert!(!udp_is_sound(&udp(41), &packet));
    assert!(!udp_is_sound(&udp(7), &packet));
    packet.part = Part::First;
    assert!(udp_is_sound(&udp(3000), &packet));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 16 } else { 4096 }, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_are_read_or_refused_and_stay_within_the_frame(
        bytes: [u8; 40], fragment: [u8; 8], frame_length in 0u32..200_000,
    ) {
        let fragment = FragmentHeader::read_from_bytes(&fragment).unwrap();
        let mut bytes = bytes;
        for version in [bytes[0], 0x45, 0x60 | bytes[0] & 0xf] {
            bytes[0] = version;
            let header = Ipv4Header::read_from_bytes(&bytes[..20]).unwrap();
            let packets = [
                ipv4(&header, frame_length),
                ipv6(&Ipv6Header::read_from_bytes(&bytes).unwrap(), None, frame_length),
                ipv6(&Ipv6Header::read_from_bytes(&bytes).unwrap(), Some(&fragment), frame_length),
            ];
            for packet in packets.into_iter().flatten() {
                prop_assert!(packet.l4_offset + packet.l4_length <= frame_length);
                prop_assert!(packet.l4_offset >= ETHERNET_LENGTH + 20);
                prop_assert_eq!(packet.key.as_bytes().len(), 40);
            }
        }
    }
}
