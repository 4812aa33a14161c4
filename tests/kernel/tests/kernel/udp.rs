//! UDP: flows without a handshake.

use gateway_common::abi::{Counter, FlowValue, UDP};
use gateway_common::maps;
use kernel_tests::frame::{self, Ends};
use kernel_tests::object::{Object, flow_key};

use crate::scene::{Scene, established, half_open, passes};

fn client_sends(scene: &Scene, payload: &[u8]) -> Vec<u8> {
    frame::udp(scene.client, scene.vip, payload)
}

fn reply(way: Ends, payload: &[u8]) -> Vec<u8> {
    frame::udp(way.destination, way.source, payload)
}

#[test]
fn second_datagram_of_the_client_promotes() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, UDP);
        let way = scene.translated(&mut object, &client_sends(&scene, b"one"));
        assert!(scene.backends.contains(&way.destination));
        let back = scene.translated(&mut object, &reply(way, b"answer"));
        assert_eq!((back.source, back.destination), (scene.vip, scene.client));
        assert_eq!((established(&mut object).len(), half_open(&mut object).len()), (0, 2));
        assert_eq!(scene.translated(&mut object, &client_sends(&scene, b"two")), way);
        assert_eq!((established(&mut object).len(), half_open(&mut object).len()), (2, 0));
        let back = scene.translated(&mut object, &reply(way, b"answer"));
        assert_eq!((back.source, back.destination), (scene.vip, scene.client));
        assert_eq!(object.counter(Counter::Promoted), 1);
    }
}

#[test]
fn datagrams_of_any_length_keep_their_checksum() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, UDP);
        for length in [0, 1, 2, 3, 17, 18, 19, 511, 1472] {
            let payload: Vec<u8> = (0..length).map(|index| (index * 13) as u8).collect();
            let way = scene.translated(&mut object, &frame::padded(client_sends(&scene, &payload)));
            scene.translated(&mut object, &frame::padded(reply(way, &payload)));
        }
    }
}

/// Offset of the UDP checksum in a frame.
fn checksum_offset(scene: &Scene) -> usize {
    14 + if scene.vip.is_ipv4() { 20 } else { 40 } + 6
}

// O11
#[test]
fn checksum_of_zero_stays_zero_over_ipv4() {
    let [scene, _] = Scene::both();
    let mut object = Object::lease();
    scene.listen(&mut object, UDP);
    let mut frame = client_sends(&scene, b"no checksum");
    frame[checksum_offset(&scene)..][..2].fill(0);
    let outcome = object.run(&frame);
    assert_eq!(outcome.frame[checksum_offset(&scene)..][..2], [0, 0]);
    let way = frame::ends(&outcome.frame);
    let mut frame = reply(way, b"none either");
    frame[checksum_offset(&scene)..][..2].fill(0);
    assert_eq!(object.run(&frame).frame[checksum_offset(&scene)..][..2], [0, 0]);
}

// O11: a computed sum of 0 is sent as 0xffff, since 0 means that there is none.
#[test]
fn checksum_that_comes_to_zero_is_sent_as_ones() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, UDP);
        let way = scene.translated(&mut object, &client_sends(&scene, &[0, 0]));
        let at = checksum_offset(&scene);
        // The payload that makes the translated datagram's sum 0: the checksum that it has with zeros there.
        let mut payload = [0; 2];
        payload.copy_from_slice(&object.run(&client_sends(&scene, &[0, 0])).frame[at..][..2]);
        let outcome = object.run(&client_sends(&scene, &payload));
        assert_eq!(outcome.frame[at..][..2], [0xff, 0xff]);
        assert_eq!(outcome.frame[at - 6..][..2], way.source.port().to_be_bytes());
    }
}

// O15: the agent deletes the entries, and the next datagram chooses anew.
#[test]
fn flow_whose_entries_are_deleted_moves_to_another_backend() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, UDP);
        for _ in 0..2 {
            scene.translated(&mut object, &client_sends(&scene, b"datagram"));
        }
        let flows = established(&mut object);
        let old = flows[0].1.backend;
        let other = if old == 1 { 2 } else { 1 };
        object.listen(UDP, scene.vip, &[other]);
        for (key, _) in flows {
            object.hash::<_, FlowValue>(maps::FLOWS).remove(&key).expect("remove");
        }
        let way = scene.translated(&mut object, &client_sends(&scene, b"datagram"));
        assert_eq!(way.destination, scene.backends[other as usize - 1]);
    }
}

#[test]
fn entry_evicted_alone_is_made_again_from_the_other() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, UDP);
        let way = scene.translated(&mut object, &client_sends(&scene, b"one"));
        let forward = flow_key(UDP, scene.client, scene.vip);
        object.hash::<_, FlowValue>(maps::HALF_OPEN).remove(&forward).expect("evict");
        scene.translated(&mut object, &reply(way, b"answer"));
        assert_eq!(half_open(&mut object).len(), 2);
        assert_eq!(scene.translated(&mut object, &client_sends(&scene, b"two")), way);
        assert_eq!(established(&mut object).len(), 2);
    }
}

#[test]
fn datagram_longer_than_its_packet_is_left_to_the_stack() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        scene.listen(&mut object, UDP);
        let mut frame = client_sends(&scene, b"payload");
        let at = checksum_offset(&scene) - 2;
        for length in [0_u16, 7, 16, 1000] {
            frame[at..][..2].copy_from_slice(&length.to_be_bytes());
            passes(&mut object, &frame);
        }
    }
}
