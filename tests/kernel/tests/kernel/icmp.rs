//! ICMP errors about packets that we or the backend had sent.

use gateway_common::abi::{Counter, TCP, UDP};
use kernel_tests::frame::{self, ACK, Ends, Tcp};
use kernel_tests::object::{Object, PASS, REDIRECT};

use crate::scene::{Scene, passes};

/// Type and code of "fragmentation needed" or "packet too big", and of "port unreachable".
fn too_big(scene: &Scene) -> (u8, u8) {
    if scene.vip.is_ipv4() { (3, 4) } else { (2, 0) }
}

fn port_unreachable(scene: &Scene) -> (u8, u8) {
    if scene.vip.is_ipv4() { (3, 3) } else { (1, 4) }
}

/// IP header and 8 bytes: all that an error must quote.
fn least(frame: &[u8]) -> &[u8] {
    let packet = frame::ip_packet(frame);
    &packet[..if packet[0] >> 4 == 4 { 28 } else { 48 }]
}

/// Addresses and ports of a quoted packet.
fn quoted_ends(quoted: &[u8]) -> (Vec<u8>, Vec<u8>, [u8; 4]) {
    let (source, length, end) = if quoted[0] >> 4 == 4 { (12, 4, 20) } else { (8, 16, 40) };
    let ports = quoted[end..end + 4].try_into().expect("ports");
    (quoted[source..][..length].to_vec(), quoted[source + length..][..length].to_vec(), ports)
}

/// Sends `proto`'s first packets, and returns the client's packet as it left and the way.
fn flow(scene: &Scene, object: &mut Object, proto: u8) -> (Vec<u8>, Vec<u8>, Ends) {
    scene.listen(object, proto);
    let (frame, way) = if proto == TCP {
        let way = scene.handshake(object);
        (scene.client_sends(&Tcp { payload: b"data", ..Tcp::new(ACK) }), way)
    } else {
        let frame = frame::udp(scene.client, scene.vip, b"data");
        let way = scene.translated(object, &frame);
        (frame, way)
    };
    let sent = object.run(&frame).frame;
    (frame, sent, way)
}

// O13: exactly the IP header and 8 bytes.
#[test]
fn error_about_our_packet_reaches_the_client_with_its_own_packet_inside() {
    for scene in Scene::both() {
        for proto in [TCP, UDP] {
            for (icmp_type, code) in [too_big(&scene), port_unreachable(&scene)] {
                let mut object = Object::lease();
                let (original, sent, way) = flow(&scene, &mut object, proto);
                let error =
                    frame::icmp_error(way.destination.ip(), scene.source, icmp_type, code, least(&sent));
                let outcome = object.run(&error);
                assert_eq!(outcome.action, REDIRECT);
                let error = frame::icmp(&outcome.frame);
                assert_eq!((error.source, error.destination), (scene.vip.ip(), scene.client.ip()));
                assert_eq!((error.icmp_type, error.code), (icmp_type, code));
                assert_eq!(quoted_ends(&error.quoted), quoted_ends(least(&original)));
                if proto == UDP {
                    let at = error.quoted.len() - 2;
                    assert_eq!(error.quoted[at..], least(&original)[at..], "checksum of the quoted datagram");
                }
                assert_eq!(object.counter(Counter::IcmpErrors), 1);
            }
        }
    }
}

#[test]
fn error_of_a_router_on_the_way_is_translated_too_and_does_not_show_its_address() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        let (original, sent, _) = flow(&scene, &mut object, TCP);
        let router = if scene.vip.is_ipv4() { "10.9.9.9" } else { "2001:db8:9::9" }.parse().expect("address");
        let (icmp_type, code) = too_big(&scene);
        let whole = frame::ip_packet(&sent);
        let outcome = object.run(&frame::icmp_error(router, scene.source, icmp_type, code, whole));
        let error = frame::icmp(&outcome.frame);
        assert_eq!((error.source, error.destination), (scene.vip.ip(), scene.client.ip()));
        assert_eq!(quoted_ends(&error.quoted), quoted_ends(least(&original)));
    }
}

// O13: path MTU discovery of the backend works through the listener.
#[test]
fn error_about_the_backends_packet_reaches_the_backend() {
    for scene in Scene::both() {
        for proto in [TCP, UDP] {
            let mut object = Object::lease();
            let (_, _, way) = flow(&scene, &mut object, proto);
            let original = if proto == TCP {
                frame::tcp(way.destination, way.source, &Tcp { payload: &[1; 900], ..Tcp::new(ACK) })
            } else {
                frame::udp(way.destination, way.source, &[1; 900])
            };
            let sent = object.run(&original).frame;
            let (icmp_type, code) = too_big(&scene);
            let error = frame::icmp_error(scene.client.ip(), scene.vip.ip(), icmp_type, code, least(&sent));
            let outcome = object.run(&error);
            assert_eq!(outcome.action, REDIRECT);
            let error = frame::icmp(&outcome.frame);
            assert_eq!((error.source, error.destination), (scene.source, way.destination.ip()));
            assert_eq!(quoted_ends(&error.quoted), quoted_ends(least(&original)));
        }
    }
}

#[test]
fn error_about_a_half_open_flow_is_translated() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let syn = scene.client_sends(&Tcp::new(frame::SYN));
        let sent = object.run(&syn).frame;
        let way = frame::ends(&sent);
        let (icmp_type, code) = port_unreachable(&scene);
        let error = frame::icmp_error(way.destination.ip(), scene.source, icmp_type, code, least(&sent));
        assert_eq!(object.run(&error).action, REDIRECT);
    }
}

#[test]
fn error_that_quotes_less_than_the_ports_is_left_to_the_stack() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        let (_, sent, way) = flow(&scene, &mut object, TCP);
        let (icmp_type, code) = too_big(&scene);
        let quoted = least(&sent);
        for length in 0..quoted.len() {
            let error =
                frame::icmp_error(way.destination.ip(), scene.source, icmp_type, code, &quoted[..length]);
            passes(&mut object, &error);
            passes(&mut object, &frame::padded(error));
        }
    }
}

#[test]
fn icmp_that_is_not_about_our_flows_is_left_to_the_stack() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        let (_, sent, way) = flow(&scene, &mut object, TCP);
        // An echo request that happens to hold a packet, and an error about a flow that we do not know.
        let echo = if scene.vip.is_ipv4() { 8 } else { 128 };
        passes(&mut object, &frame::icmp_error(way.destination.ip(), scene.source, echo, 0, least(&sent)));
        let strange = frame::udp(scene.client, scene.vip, b"unknown");
        let (icmp_type, code) = port_unreachable(&scene);
        let error = frame::icmp_error(scene.client.ip(), scene.vip.ip(), icmp_type, code, least(&strange));
        assert_eq!(object.run(&error).action, PASS);
        assert_eq!(object.counter(Counter::IcmpErrors), 0);
    }
}
