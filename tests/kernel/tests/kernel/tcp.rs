//! TCP: from the SYN to the end.

use gateway_common::abi::{Counter, TCP};
use gateway_common::flow::{self, Flags};
use gateway_common::maps;
use kernel_tests::frame::{self, ACK, FIN, RST, SYN, Tcp};
use kernel_tests::object::{Object, flow_key};

use crate::scene::{ANSWER, Scene, answer, backend_sends, established, half_open, passes};

#[test]
fn handshake_is_translated_both_ways_and_promotes_the_flow() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        let service = scene.listen(&mut object, TCP);

        let way = scene.syn(&mut object);
        assert_eq!(way.source.ip(), scene.source);
        assert!(
            (10_000..30_000).contains(&way.source.port()),
            "source port {} out of range",
            way.source.port()
        );
        assert!(scene.backends.contains(&way.destination));
        assert_eq!((established(&mut object).len(), half_open(&mut object).len()), (0, 2));

        let back = scene.translated(&mut object, &answer(way));
        assert_eq!((back.source, back.destination), (scene.vip, scene.client));
        assert_eq!(established(&mut object).len(), 0, "a backend's answer alone promotes nothing");

        let ack = Tcp::new(ACK).acknowledging(ANSWER.wrapping_add(1));
        assert_eq!(scene.translated(&mut object, &scene.client_sends(&ack)), way);
        assert_eq!((established(&mut object).len(), half_open(&mut object).len()), (2, 0));

        assert_eq!(object.counter(Counter::Opened), 1);
        assert_eq!(object.counter(Counter::Promoted), 1);
        assert_eq!(object.counter(Counter::Translated), 3);
        let counters = object.service_counters(service);
        assert_eq!((counters.flows, counters.received_packets, counters.sent_packets), (1, 2, 1));
        let sizes =
            (scene.client_sends(&ack).len() + scene.client_sends(&Tcp::new(SYN)).len(), answer(way).len());
        assert_eq!((counters.received_bytes as usize, counters.sent_bytes as usize), sizes);
    }
}

#[test]
fn both_entries_are_mirror_images() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let way = scene.handshake(&mut object);
        let forward = flow_key(TCP, scene.client, scene.vip);
        let reverse = flow_key(TCP, way.destination, way.source);
        let flows: std::collections::HashMap<_, _> = established(&mut object).into_iter().collect();
        assert_eq!(flow::mirror_key(&forward, &flows[&forward]), reverse);
        assert_eq!(flow::mirror_key(&reverse, &flows[&reverse]), forward);
        assert_eq!(flow::mirror(&forward, &flows[&forward]).destination, flows[&reverse].destination);
    }
}

#[test]
fn data_of_any_length_keeps_its_checksum() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let way = scene.handshake(&mut object);
        for length in [0, 1, 2, 3, 7, 100, 1459, 1460] {
            let payload: Vec<u8> = (0..length).map(|index| (index * 7) as u8).collect();
            let segment = Tcp { payload: &payload, ..Tcp::new(ACK).acknowledging(ANSWER.wrapping_add(1)) };
            assert_eq!(scene.translated(&mut object, &scene.client_sends(&segment)), way);
            let back = scene.translated(&mut object, &backend_sends(way, &segment));
            assert_eq!((back.source, back.destination), (scene.vip, scene.client));
        }
    }
}

// O11: a 1-byte payload in a frame padded to 60 bytes.
#[test]
fn padded_frame_keeps_its_padding_and_its_checksum() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let way = scene.handshake(&mut object);
        let segment = Tcp { payload: b"x", ..Tcp::new(ACK).acknowledging(ANSWER.wrapping_add(1)) };
        let padded = frame::padded(scene.client_sends(&segment));
        assert_eq!(scene.translated(&mut object, &padded), way);
        assert_eq!(object.run(&padded).frame.len(), padded.len());
    }
}

// O05
#[test]
fn retransmitted_syn_meets_the_same_backend_and_source_port() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let way = scene.syn(&mut object);
        // The table changes in between: only the flow's own state says where it went.
        let other =
            scene.backends.into_iter().find(|backend| *backend != way.destination).expect("two backends");
        let other = object.backend(other, scene.source);
        object.listen(TCP, scene.vip, &[other]);
        assert_eq!(scene.syn(&mut object), way);
        // The first SYN-ACK is lost; the second handshake attempt completes.
        assert_eq!(scene.syn(&mut object), way);
        scene.translated(&mut object, &answer(way));
        let ack = Tcp::new(ACK).acknowledging(ANSWER.wrapping_add(1));
        assert_eq!(scene.translated(&mut object, &scene.client_sends(&ack)), way);
        assert_eq!(object.counter(Counter::Opened), 1);
    }
}

#[test]
fn retransmitted_syn_leaves_a_backend_that_is_gone() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let way = scene.syn(&mut object);
        let gone = half_open(&mut object)[0].1.backend;
        let other =
            scene.backends.into_iter().find(|backend| *backend != way.destination).expect("two backends");
        let other = object.backend(other, scene.source);
        object.listen(TCP, scene.vip, &[other]);
        object.hash::<u32, gateway_common::abi::BackendValue>(maps::BACKENDS).remove(&gone).expect("remove");
        assert_ne!(scene.syn(&mut object).destination, way.destination);
        assert_eq!(half_open(&mut object).len(), 2, "the old flow's entries are gone");
    }
}

#[test]
fn syn_after_a_refusal_starts_anew() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let way = scene.syn(&mut object);
        let back = scene.translated(&mut object, &backend_sends(way, &Tcp::new(RST)));
        assert_eq!((back.source, back.destination), (scene.vip, scene.client));
        let other =
            scene.backends.into_iter().find(|backend| *backend != way.destination).expect("two backends");
        let id = object.backend(other, scene.source);
        object.listen(TCP, scene.vip, &[id]);
        assert_eq!(scene.syn(&mut object).destination, other);
        assert_eq!(half_open(&mut object).len(), 2);
    }
}

#[test]
fn established_flow_keeps_its_backend_when_the_table_changes() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let way = scene.handshake(&mut object);
        object.listen(TCP, scene.vip, &[]);
        let data = Tcp { payload: b"data", ..Tcp::new(ACK) };
        assert_eq!(scene.translated(&mut object, &scene.client_sends(&data)), way);
    }
}

// O06: an acknowledgment that the backend's SYN does not allow proves nothing.
#[test]
fn guessed_acknowledgment_does_not_promote() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let way = scene.syn(&mut object);
        let blind = Tcp::new(ACK).acknowledging(ANSWER.wrapping_add(1));
        scene.translated(&mut object, &scene.client_sends(&blind));
        assert_eq!(established(&mut object).len(), 0, "nothing was answered yet");
        scene.translated(&mut object, &answer(way));
        for wrong in [ANSWER, ANSWER.wrapping_sub(1), ANSWER.wrapping_add(1 << 20)] {
            scene.translated(&mut object, &scene.client_sends(&Tcp::new(ACK).acknowledging(wrong)));
            assert_eq!(established(&mut object).len(), 0);
        }
        // The first ACK was lost and the client acknowledges data at once.
        scene.translated(
            &mut object,
            &scene.client_sends(&Tcp::new(ACK).acknowledging(ANSWER.wrapping_add(2_000))),
        );
        assert_eq!(established(&mut object).len(), 2);
    }
}

#[test]
fn fin_both_ways_ends_the_flow_and_a_new_syn_starts_anew() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let way = scene.handshake(&mut object);
        scene.translated(&mut object, &scene.client_sends(&Tcp::new(FIN)));
        let closing = |object: &mut Object| {
            let flows = established(object);
            assert_eq!(flows.len(), 2);
            flow::is_closing(flows[0].1.flags, flows[1].1.flags)
        };
        assert!(!closing(&mut object), "half closed");
        scene.translated(&mut object, &backend_sends(way, &Tcp::new(ACK)));
        scene.translated(&mut object, &backend_sends(way, &Tcp::new(FIN)));
        assert!(closing(&mut object));
        // The last ACK still passes.
        assert_eq!(scene.translated(&mut object, &scene.client_sends(&Tcp::new(ACK))), way);
        scene.syn(&mut object);
        assert_eq!((established(&mut object).len(), half_open(&mut object).len()), (0, 2));
        assert_eq!(object.counter(Counter::Opened), 2);
    }
}

#[test]
fn rst_marks_the_flow_until_traffic_goes_on() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let way = scene.handshake(&mut object);
        let marked = |object: &mut Object| {
            established(object).iter().filter(|(_, value)| value.flags & Flags::RESET != 0).count()
        };
        assert_eq!(scene.translated(&mut object, &scene.client_sends(&Tcp::new(RST))), way);
        assert_eq!(marked(&mut object), 1);
        assert_eq!(scene.translated(&mut object, &scene.client_sends(&Tcp::new(ACK))), way);
        assert_eq!(marked(&mut object), 0, "the RST was forged: the client goes on");
        scene.translated(&mut object, &backend_sends(way, &Tcp::new(RST)));
        assert_eq!(marked(&mut object), 1);
        scene.syn(&mut object);
        assert_eq!((established(&mut object).len(), object.counter(Counter::Opened)), (0, 2));
    }
}

#[test]
fn syn_on_a_live_flow_is_the_backends_to_judge() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let way = scene.handshake(&mut object);
        assert_eq!(scene.syn(&mut object), way);
        // It answers a challenge ACK, so it lives; a second SYN goes to it again.
        scene.translated(&mut object, &backend_sends(way, &Tcp::new(ACK)));
        assert_eq!(scene.syn(&mut object), way);
        assert_eq!(established(&mut object).len(), 2);
    }
}

#[test]
fn second_syn_unanswered_starts_anew() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let way = scene.handshake(&mut object);
        scene.syn(&mut object);
        // As if the backend had last been heard of long ago.
        let reverse = flow_key(TCP, way.destination, way.source);
        let mut flows = object.hash(maps::FLOWS);
        let mut value: gateway_common::abi::FlowValue = flows.get(&reverse, 0).expect("the backend's entry");
        value.last_seen_s = value.last_seen_s.wrapping_sub(100);
        flows.insert(&reverse, &value, 0).expect("write");
        scene.syn(&mut object);
        assert_eq!((established(&mut object).len(), half_open(&mut object).len()), (0, 2));
    }
}

// O07: not silence but the stack's RST.
#[test]
fn segment_of_no_flow_is_left_to_the_stack() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        for flags in [ACK, FIN, RST, frame::SYN_ACK] {
            passes(&mut object, &scene.client_sends(&Tcp::new(flags)));
        }
        assert_eq!(half_open(&mut object).len(), 0);
    }
}

#[test]
fn connections_of_one_client_use_distinct_source_ports() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, TCP);
        let ways: std::collections::HashSet<_> = (0..500)
            .map(|index| {
                let way = scene.with_client_port(1024 + index * 64).syn(&mut object);
                (way.source, way.destination)
            })
            .collect();
        assert_eq!(ways.len(), 500);
    }
}
