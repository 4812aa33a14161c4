//! What happens at the bounds of the tables.

use std::net::SocketAddr;

use gateway_common::abi::{Config, Counter, NO_BACKEND, TCP, UDP};
use gateway_common::maps;
use kernel_tests::frame::{self, ACK, SYN, Tcp};
use kernel_tests::object::{Object, REDIRECT};

use crate::scene::{ANSWER, Scene, answer, established, half_open, passes};

// O06: more half-open flows than their table holds, while one flow is established.
#[test]
fn flood_of_half_open_flows_does_not_touch_an_established_one() {
    const TABLE: u32 = 1_024;
    for scene in Scene::both() {
        let mut object = Object::load_with(|loader| {
            loader.map_max_entries(maps::HALF_OPEN, TABLE);
        });
        scene.listen(&mut object, TCP);
        let way = scene.handshake(&mut object);
        for index in 0..TABLE + TABLE / 10 {
            let port = u16::try_from(1_024 + index).expect("below 65,536");
            let syn = frame::tcp(SocketAddr::new(scene.client.ip(), port), scene.vip, &Tcp::new(SYN));
            assert_eq!(object.run(&syn).action, REDIRECT);
        }
        assert!(half_open(&mut object).len() <= TABLE as usize);
        assert_eq!(established(&mut object).len(), 2);
        assert_eq!(scene.translated(&mut object, &scene.client_sends(&Tcp::new(ACK))), way);
    }
}

#[test]
fn flow_that_finds_the_established_table_full_goes_on_half_open() {
    for scene in Scene::both() {
        let mut object = Object::load_with(|loader| {
            loader.map_max_entries(maps::FLOWS, 3);
        });
        scene.listen(&mut object, TCP);
        let first = scene.handshake(&mut object);
        let second = scene.with_client_port(41_000);
        let way = second.syn(&mut object);
        second.translated(&mut object, &answer(way));
        let ack = Tcp::new(ACK).acknowledging(ANSWER.wrapping_add(1));
        for _ in 0..3 {
            assert_eq!(second.translated(&mut object, &second.client_sends(&ack)), way);
        }
        assert_eq!(established(&mut object).len(), 2, "never half a flow");
        assert_eq!(half_open(&mut object).len(), 2);
        assert_eq!((object.counter(Counter::TableFull), object.counter(Counter::Promoted)), (3, 1));
        assert_eq!(scene.translated(&mut object, &scene.client_sends(&ack)), first);
    }
}

#[test]
fn new_flow_without_a_free_source_port_is_left_to_the_stack() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        let backend = object.backend(scene.backends[0], scene.source);
        object.listen(TCP, scene.vip, &[backend]);
        object.configure(Config { source_port_first: 20_000, source_port_count: 2 });
        for port in [40_000, 40_001] {
            scene.with_client_port(port).syn(&mut object);
        }
        passes(&mut object, &scene.with_client_port(40_002).client_sends(&Tcp::new(SYN)));
        assert_eq!(object.counter(Counter::NoPort), 1);
        object.configure(Config { source_port_first: 20_000, source_port_count: 0 });
        passes(&mut object, &scene.with_client_port(40_003).client_sends(&Tcp::new(SYN)));
        assert_eq!(object.counter(Counter::NoPort), 2);
    }
}

#[test]
fn source_port_of_a_flow_that_never_came_about_is_free_again() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        let backend = object.backend(scene.backends[0], scene.source);
        object.listen(TCP, scene.vip, &[backend]);
        object.configure(Config { source_port_first: 20_000, source_port_count: 1 });
        let first = scene.syn(&mut object);
        // As if that had been a minute ago.
        for (key, mut value) in half_open(&mut object) {
            value.last_seen_s = value.last_seen_s.wrapping_sub(gateway_common::flow::HALF_OPEN_S);
            object.hash(maps::HALF_OPEN).insert(&key, &value, 0).expect("write");
        }
        let second = scene.with_client_port(41_000).syn(&mut object);
        assert_eq!(first.source, second.source);
        assert_eq!(half_open(&mut object).len(), 2, "the old flow is gone as a whole");
    }
}

// O08: the relay refuses it.
#[test]
fn refused_share_is_left_to_the_stack_and_counted() {
    for scene in Scene::both() {
        for proto in [TCP, UDP] {
            let mut object = Object::lease();
            object.listen(proto, scene.vip, &[NO_BACKEND]);
            let frame = if proto == TCP {
                scene.client_sends(&Tcp::new(SYN))
            } else {
                frame::udp(scene.client, scene.vip, b"datagram")
            };
            passes(&mut object, &frame);
            assert_eq!(object.counter(Counter::Refused), 1);
            assert_eq!(half_open(&mut object).len(), 0);
        }
    }
}

#[test]
fn backend_of_an_id_that_is_gone_refuses() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        object.listen(TCP, scene.vip, &[77]);
        passes(&mut object, &scene.client_sends(&Tcp::new(SYN)));
        assert_eq!(object.counter(Counter::Refused), 1);
    }
}

#[test]
fn program_picks_by_the_shared_hash() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        for port in (1_024..60_000).step_by(997) {
            let scene = scene.with_client_port(port);
            let hash = gateway_common::hash::flow(
                &scene.client.ip().into(),
                port,
                &scene.vip.ip().into(),
                scene.vip.port(),
                TCP,
            );
            // The table holds both backends in turn.
            let slot = gateway_common::maglev::slot(hash, 251).expect("a slot");
            let expected = scene.backends[slot as usize % 2];
            assert_eq!(scene.syn(&mut object).destination, expected);
        }
    }
}
