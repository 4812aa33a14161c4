//! Fragments: those of a backend follow their first, those of a client go to the stack.

use gateway_common::abi::{Counter, FragmentKey, FragmentValue, UDP};
use gateway_common::maps;
use kernel_tests::frame::{self, Ends};
use kernel_tests::object::{Object, PASS, REDIRECT};

use crate::scene::{Scene, passes};

/// Cuts a frame's IP payload into fragments of at most `size` bytes, a multiple of 8.
fn cut(frame: &[u8], size: usize, identification: u32) -> Vec<Vec<u8>> {
    let is_v4 = frame[14] >> 4 == 4;
    let header_length = if is_v4 { 20 } else { 40 };
    let payload = &frame[14 + header_length..];
    let mut fragments = Vec::new();
    let mut offset = 0;
    while offset < payload.len() {
        let end = payload.len().min(offset + size);
        let more = u16::from(end < payload.len());
        let mut fragment = frame[..14 + header_length].to_vec();
        let units = u16::try_from(offset / 8).expect("a short datagram");
        if is_v4 {
            let length = u16::try_from(20 + end - offset).expect("short");
            fragment[16..18].copy_from_slice(&length.to_be_bytes());
            fragment[18..20].copy_from_slice(&(identification as u16).to_be_bytes());
            fragment[20..22].copy_from_slice(&(more << 13 | units).to_be_bytes());
            fragment[24..26].fill(0);
            let sum =
                etherparse::checksum::Sum16BitWords::new().add_slice(&fragment[14..34]).ones_complement();
            fragment[24..26].copy_from_slice(&sum.to_ne_bytes());
        } else {
            let length = u16::try_from(8 + end - offset).expect("short");
            fragment[18..20].copy_from_slice(&length.to_be_bytes());
            let proto = std::mem::replace(&mut fragment[20], 44);
            fragment.extend_from_slice(&[proto, 0]);
            fragment.extend_from_slice(&(units << 3 | more).to_be_bytes());
            fragment.extend_from_slice(&identification.to_be_bytes());
        }
        fragment.extend_from_slice(&payload[offset..end]);
        fragments.push(fragment);
        offset = end;
    }
    fragments
}

/// The reverse of [`cut`], for translated fragments in order.
fn join(fragments: &[Vec<u8>]) -> Vec<u8> {
    let is_v4 = fragments[0][14] >> 4 == 4;
    let mut whole = Vec::new();
    for fragment in fragments {
        if whole.is_empty() {
            whole.extend_from_slice(&fragment[..if is_v4 { 34 } else { 54 }]);
        }
        whole.extend_from_slice(&fragment[if is_v4 { 34 } else { 62 }..]);
    }
    let length = whole.len() - if is_v4 { 14 } else { 54 };
    let at = if is_v4 { 16 } else { 18 };
    whole[at..at + 2].copy_from_slice(&u16::try_from(length).expect("short").to_be_bytes());
    if is_v4 {
        whole[20..22].fill(0);
        whole[24..26].fill(0);
        let sum = etherparse::checksum::Sum16BitWords::new().add_slice(&whole[14..34]).ones_complement();
        whole[24..26].copy_from_slice(&sum.to_ne_bytes());
    } else {
        whole[20] = fragments[0][54];
    }
    whole
}

fn reply(way: Ends) -> Vec<u8> {
    let payload: Vec<u8> = (0..3_000_u32).map(|index| (index * 31) as u8).collect();
    frame::udp(way.destination, way.source, &payload)
}

fn flow(scene: &Scene, object: &mut Object) -> Ends {
    scene.listen(object, UDP);
    scene.translated(object, &frame::udp(scene.client, scene.vip, b"request"))
}

// O14
#[test]
fn every_fragment_of_a_reply_carries_the_listeners_address() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        let way = flow(&scene, &mut object);
        let fragments = cut(&reply(way), 1_480, 0x1234_5678);
        assert_eq!(fragments.len(), 3);
        let translated: Vec<Vec<u8>> = fragments
            .iter()
            .map(|fragment| {
                let outcome = object.run(fragment);
                assert_eq!(outcome.action, REDIRECT);
                outcome.frame
            })
            .collect();
        // The checksum, over all of it, is right when it is put together.
        let ends = frame::ends(&join(&translated));
        assert_eq!((ends.source, ends.destination), (scene.vip, scene.client));
        assert_eq!(object.counter(Counter::Fragments), 2);
    }
}

#[test]
fn fragment_that_comes_before_its_first_is_left_to_the_stack_and_counted() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        let way = flow(&scene, &mut object);
        let fragments = cut(&reply(way), 1_480, 7);
        passes(&mut object, &fragments[1]);
        assert_eq!(object.counter(Counter::FragmentsUnknown), 1);
    }
}

#[test]
fn fragments_of_another_datagram_do_not_follow() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        let way = flow(&scene, &mut object);
        assert_eq!(object.run(&cut(&reply(way), 1_480, 7)[0]).action, REDIRECT);
        passes(&mut object, &cut(&reply(way), 1_480, 8)[1]);
    }
}

#[test]
fn identification_used_again_by_a_datagram_not_ours_is_forgotten() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        let way = flow(&scene, &mut object);
        assert_eq!(object.run(&cut(&reply(way), 1_480, 7)[0]).action, REDIRECT);
        let mut stranger = way;
        stranger.source.set_port(53);
        for fragment in cut(&reply(stranger), 1_480, 7) {
            passes(&mut object, &fragment);
        }
    }
}

#[test]
fn first_fragment_is_remembered_for_as_long_as_datagrams_are_put_together() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        let way = flow(&scene, &mut object);
        let fragments = cut(&reply(way), 1_480, 7);
        object.run(&fragments[0]);
        let mut table = object.hash::<FragmentKey, FragmentValue>(maps::FRAGMENTS);
        let (key, mut value) = table.iter().next().expect("one entry").expect("read");
        value.last_seen_s = value.last_seen_s.wrapping_sub(30);
        table.insert(&key, &value, 0).expect("write");
        passes(&mut object, &fragments[1]);
    }
}

// O14: never half-translated.
#[test]
fn fragmented_datagram_of_a_client_is_left_to_the_stack_as_a_whole() {
    for scene in Scene::both() {
        let mut object = Object::lease();
        let request = frame::udp(scene.client, scene.vip, &[7; 3_000]);
        scene.listen(&mut object, UDP);
        for fragment in cut(&request, 1_480, 9) {
            passes(&mut object, &fragment);
        }
        // Also when there is a flow already.
        scene.translated(&mut object, &frame::udp(scene.client, scene.vip, b"request"));
        for fragment in cut(&request, 1_480, 9) {
            passes(&mut object, &fragment);
        }
        assert_eq!(object.counter(Counter::LeftToStack), 1);
        assert_eq!(object.run(&cut(&request, 1_480, 9)[0]).action, PASS);
    }
}
