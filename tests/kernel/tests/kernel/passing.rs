//! What is not ours, or cannot be translated, goes to the stack as it came.

use std::net::SocketAddr;

use gateway_common::abi::{TCP, UDP};
use kernel_tests::frame::{self, SYN, Tcp};
use kernel_tests::object::{Object, PASS};

use crate::scene::{Scene, established, half_open, passes};

#[test]
fn packet_for_a_port_that_is_no_listener_is_left_to_the_stack() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let other = SocketAddr::new(scene.vip.ip(), 81);
        passes(&mut object, &frame::tcp(scene.client, other, &Tcp::new(SYN)));
        passes(&mut object, &frame::udp(scene.client, scene.vip, b"another protocol"));
        assert_eq!(half_open(&mut object).len(), 0);
    }
}

#[test]
fn syn_that_carries_other_flags_opens_nothing() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        for (fin, rst) in [(true, false), (false, true), (true, true)] {
            let flags = frame::Flags { fin, rst, ..SYN };
            passes(&mut object, &scene.client_sends(&Tcp::new(flags)));
        }
    }
}

#[test]
fn last_hop_is_left_to_the_stack() {
    for scene in Scene::both() {
        for hops in [0, 1] {
            let mut object = Object::lease();
            scene.listen(&mut object, UDP);
            let mut frame = frame::udp(scene.client, scene.vip, b"datagram");
            frame[if scene.vip.is_ipv4() { 22 } else { 21 }] = hops;
            passes(&mut object, &frame);
        }
    }
}

#[test]
fn frame_for_another_host_is_left_to_the_stack() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, UDP);
        let mut frame = frame::udp(scene.client, scene.vip, b"datagram");
        frame[..6].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
        passes(&mut object, &frame);
    }
}

#[test]
fn ipv4_options_are_left_to_the_stack() {
    let [scene, _] = Scene::both();
    let mut object = Object::lease();
    scene.listen(&mut object, UDP);
    let plain = frame::udp(scene.client, scene.vip, b"datagram");
    // Four bytes of "no operation".
    let mut frame = [&plain[..34], &[1; 4], &plain[34..]].concat();
    frame[14] = 0x46;
    let length = u16::try_from(frame.len() - 14).expect("short");
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    passes(&mut object, &frame);
}

#[test]
fn ipv6_extension_headers_are_left_to_the_stack() {
    let [_, scene] = Scene::both();
    let mut object = Object::lease();
    scene.listen(&mut object, UDP);
    let plain = frame::udp(scene.client, scene.vip, b"datagram");
    for extension in [0, 43, 60] {
        let mut frame = [&plain[..54], &[17, 0, 1, 4, 0, 0, 0, 0], &plain[54..]].concat();
        frame[20] = extension;
        let length = u16::try_from(frame.len() - 54).expect("short");
        frame[18..20].copy_from_slice(&length.to_be_bytes());
        passes(&mut object, &frame);
    }
}

#[test]
fn frame_cut_at_any_byte_is_left_to_the_stack() {
    for scene in Scene::both() {
        for proto in [TCP, UDP] {
            let mut object = Object::lease();
            scene.listen(&mut object, proto);
            let frame = if proto == TCP {
                scene.client_sends(&Tcp::new(SYN))
            } else {
                frame::udp(scene.client, scene.vip, b"datagram")
            };
            let mut n_refused_by_kernel = 0;
            for length in 0..frame.len() {
                match object.try_run(&frame[..length]) {
                    Ok(outcome) => assert_eq!(outcome.action, PASS, "cut at {length}"),
                    // Test runs must hold at least an Ethernet header, on newer kernels an IP header.
                    Err(_) => n_refused_by_kernel += 1,
                }
            }
            assert!(n_refused_by_kernel < 60, "{n_refused_by_kernel} lengths could not be run");
            assert_eq!((established(&mut object).len(), half_open(&mut object).len()), (0, 0));
        }
    }
}

#[test]
fn tcp_header_that_does_not_fit_is_left_to_the_stack() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let mut frame = scene.client_sends(&Tcp::new(SYN));
        let at = if scene.vip.is_ipv4() { 34 } else { 54 } + 12;
        for words in [0, 4, 6, 15] {
            frame[at] = words << 4;
            passes(&mut object, &frame);
        }
    }
}

#[test]
fn other_protocols_are_left_to_the_stack() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let mut frame = scene.client_sends(&Tcp::new(SYN));
        frame[if scene.vip.is_ipv4() { 23 } else { 20 }] = 132;
        passes(&mut object, &frame);
        let mut frame = scene.client_sends(&Tcp::new(SYN));
        frame[12..14].copy_from_slice(&[0x81, 0]);
        passes(&mut object, &frame);
    }
}
