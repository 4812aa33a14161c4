use super::{
    CLOSING_S, Flags, HALF_OPEN_S, TCP_IDLE_S, UDP_IDLE_S, after_segment, answers, completes_handshake,
    has_expired, is_closing, is_live_half_open, mirror, mirror_key, opens, restarts, seconds_since,
};
use crate::abi::{FlowKey, FlowValue, TCP, UDP};
use crate::address::Address;
use crate::parse::TcpFlags;

fn from_v4(octets: [u8; 4]) -> Address {
    Address::from_ip(core::net::IpAddr::from(octets))
}

fn flow(proto: u8) -> (FlowKey, FlowValue) {
    let key = FlowKey {
        source: from_v4([198, 51, 100, 7]),
        destination: from_v4([192, 0, 2, 1]),
        source_port_be: 1,
        destination_port_be: 2,
        proto,
        reserved: [0; 3],
    };
    let value = FlowValue {
        source: from_v4([10, 0, 0, 1]),
        destination: from_v4([10, 0, 0, 2]),
        source_port_be: 3,
        destination_port_be: 4,
        ifindex: 5,
        reverse_ifindex: 6,
        backend: 7,
        service: 8,
        flags: 0,
        last_seen_s: 100,
        answer_sequence: 0,
    };
    (key, value)
}

#[test]
fn mirror_of_the_mirror_is_the_flow() {
    let (key, value) = flow(TCP);
    let (other_key, other) = (mirror_key(&key, &value), mirror(&key, &value));
    assert_eq!(other.flags, Flags::REVERSE);
    assert_eq!((other.ifindex, other.reverse_ifindex), (6, 5));
    assert_eq!((mirror_key(&other_key, &other), mirror(&other_key, &other)), (key, value));
}

// O07: two hours of silence leave the entry there.
#[test]
fn idle_connection_outlives_a_keepalive_interval() {
    let (key, value) = flow(TCP);
    assert!(!has_expired(&key, &value, None, 100 + 7_200));
    assert!(has_expired(&key, &value, None, 100 + TCP_IDLE_S));
}

#[test]
fn traffic_of_either_direction_keeps_a_flow() {
    let (key, value) = flow(UDP);
    let mut other = mirror(&key, &value);
    other.last_seen_s = 150;
    assert!(has_expired(&key, &value, None, 100 + UDP_IDLE_S));
    assert!(!has_expired(&key, &value, Some(&other), 100 + UDP_IDLE_S));
    assert!(has_expired(&key, &value, Some(&other), 150 + UDP_IDLE_S));
}

#[test]
fn half_closed_connection_is_not_closing() {
    assert!(!is_closing(Flags::FIN, 0));
    assert!(!is_closing(0, Flags::FIN));
    assert!(is_closing(Flags::FIN, Flags::FIN));
    assert!(is_closing(Flags::RESET, 0));
    assert!(is_closing(0, Flags::RESET));
}

#[test]
fn closed_connection_goes_soon() {
    let (key, mut value) = flow(TCP);
    value.flags = Flags::FIN;
    let mut other = mirror(&key, &value);
    assert!(!has_expired(&key, &value, Some(&other), 100 + CLOSING_S));
    other.flags |= Flags::FIN;
    assert!(!has_expired(&key, &value, Some(&other), 100 + CLOSING_S - 1));
    assert!(has_expired(&key, &value, Some(&other), 100 + CLOSING_S));
}

#[test]
fn age_survives_the_wrap_and_a_clock_a_moment_ahead() {
    assert_eq!(seconds_since(5, u32::MAX), 6);
    assert_eq!(seconds_since(5, 6), 0);
}

#[test]
fn only_a_bare_syn_opens_and_only_a_syn_ack_answers() {
    for flags in 0..=u8::MAX {
        assert_eq!(opens(flags), flags & 0b1_0111 == 0b0010);
        assert_eq!(answers(flags), flags & 0b1_0110 == 0b1_0010);
    }
}

#[test]
fn rst_is_forgotten_when_the_direction_goes_on() {
    let reset = after_segment(0, TcpFlags::RST | TcpFlags::ACK);
    assert_eq!(reset, Flags::RESET);
    assert_eq!(after_segment(reset, TcpFlags::ACK), 0);
    assert_eq!(after_segment(Flags::FIN | Flags::REVERSE, TcpFlags::ACK), Flags::FIN | Flags::REVERSE);
}

#[test]
fn syn_is_marked_on_the_clients_side_only() {
    assert_eq!(after_segment(0, TcpFlags::SYN), Flags::SYN_AGAIN);
    assert_eq!(after_segment(Flags::SYN_AGAIN, TcpFlags::ACK), 0);
    assert_eq!(after_segment(Flags::REVERSE, TcpFlags::SYN), Flags::REVERSE);
}

#[test]
fn syn_restarts_an_ended_flow_and_one_whose_backend_is_silent() {
    let (key, client) = flow(TCP);
    let backend = mirror(&key, &client);
    assert!(!restarts(&client, &backend));
    let with = |value: FlowValue, flags: u32, last_seen_s| FlowValue { flags, last_seen_s, ..value };
    assert!(restarts(&with(client, Flags::FIN, 100), &with(backend, Flags::FIN, 100)));
    assert!(!restarts(&with(client, Flags::FIN, 100), &backend));
    assert!(restarts(&client, &with(backend, Flags::RESET, 100)));
    // One SYN may be lost, or its answer may have come in the same second.
    assert!(!restarts(&with(client, Flags::SYN_AGAIN, 100), &with(backend, 0, 100)));
    assert!(!restarts(&with(client, 0, 100), &with(backend, 0, 50)));
    assert!(restarts(&with(client, Flags::SYN_AGAIN, 100), &with(backend, 0, 99)));
}

// O06
#[test]
fn handshake_completes_by_an_acknowledgment_of_the_answer_only() {
    let (_, mut client) = flow(TCP);
    assert!(!completes_handshake(&client, TcpFlags::ACK, 1), "nothing was answered");
    client.flags = Flags::ANSWERED;
    client.answer_sequence = u32::MAX - 5;
    for (acknowledgment, completes) in [
        (u32::MAX - 5, false),
        (u32::MAX - 4, true),
        (0, true),
        (60_000, true),
        (66_000, false),
        (u32::MAX - 6, false),
        (1 << 31, false),
    ] {
        assert_eq!(
            completes_handshake(&client, TcpFlags::ACK, acknowledgment),
            completes,
            "{acknowledgment}"
        );
    }
    assert!(!completes_handshake(&client, TcpFlags::ACK | TcpFlags::RST, 0));
    assert!(!completes_handshake(&client, 0, 0));
}

#[test]
fn half_open_flow_lives_for_a_minute_unless_reset() {
    let (_, value) = flow(TCP);
    assert!(is_live_half_open(&value, 100 + HALF_OPEN_S - 1));
    assert!(!is_live_half_open(&value, 100 + HALF_OPEN_S));
    assert!(!is_live_half_open(&FlowValue { flags: Flags::RESET, ..value }, 100));
}
