//! The object as such.

use aya::programs::{TestRun as _, TestRunOptions};
use gateway_common::abi::{FlowValue, UDP};
use gateway_common::maps;
use kernel_tests::frame;
use kernel_tests::object::{Object, REDIRECT, flow_key};

use crate::scene::Scene;

#[test]
fn verifier_accepts_both_programs() {
    let object = Object::load_full();
    for name in [maps::L4_INGRESS, maps::STEER] {
        let info = object.ebpf.program(name).expect("loaded").info().expect("info");
        match info.verified_instruction_count() {
            Some(count) => println!("fact: {name}: {count} instructions verified"),
            None => println!("fact: {name}: loads, this kernel does not count verified instructions"),
        }
    }
}

#[test]
fn object_has_every_map_under_its_name() {
    let object = Object::lease();
    for name in [
        maps::LISTENERS,
        maps::SLOTS,
        maps::BACKENDS,
        maps::FLOWS,
        maps::HALF_OPEN,
        maps::FRAGMENTS,
        maps::CONFIG,
        maps::META,
        maps::COUNTERS,
        maps::SERVICE_COUNTERS,
        maps::STEERED,
        maps::SOCKETS,
    ] {
        assert!(object.ebpf.map(name).is_some(), "no map {name}");
    }
}

/// Says how long a packet takes, and judges nothing: the machine may be busy or emulated.
#[test]
fn translated_packet_is_timed() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        // A flow that is translated to itself, so that one frame can be run again until it has no hops left.
        let key = flow_key(UDP, scene.client, scene.vip);
        let value = FlowValue {
            source: key.source,
            destination: key.destination,
            source_port_be: key.source_port_be,
            destination_port_be: key.destination_port_be,
            ..FlowValue::default()
        };
        object.hash(maps::FLOWS).insert(&key, &value, 0).expect("write");
        let mut frame = frame::udp(scene.client, scene.vip, &[0; 18]);
        frame[if scene.vip.is_ipv4() { 22 } else { 21 }] = 255;
        let options = TestRunOptions { data_in: Some(&frame), repeat: 250, ..TestRunOptions::default() };
        let result = object.classifier().test_run(options).expect("test run");
        assert_eq!(result.return_value.cast_signed(), REDIRECT);
        let family = if scene.vip.is_ipv4() { "IPv4" } else { "IPv6" };
        println!("fact: l4_ingress: {} ns for an {family} datagram of a flow", result.duration.as_nanos());
    }
}
