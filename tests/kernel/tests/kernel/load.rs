//! The object as such.

use gateway_common::maps;
use kernel_tests::object::Object;

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
