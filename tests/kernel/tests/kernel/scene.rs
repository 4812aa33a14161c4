//! One listener with two backends, in each family.

use std::net::{IpAddr, SocketAddr};

use gateway_common::abi::{FlowKey, FlowValue};
use gateway_common::maps;
use kernel_tests::frame::{self, ACK, Ends, SYN, SYN_ACK, TTL, Tcp};
use kernel_tests::object::{Object, PASS, REDIRECT};

/// Sequence number of the backends' SYN.
pub(crate) const ANSWER: u32 = 0xffff_fff0;

pub(crate) struct Scene {
    pub(crate) client: SocketAddr,
    pub(crate) vip: SocketAddr,
    pub(crate) backends: [SocketAddr; 2],
    pub(crate) source: IpAddr,
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

impl Scene {
    pub(crate) fn both() -> [Self; 2] {
        [
            Self {
                client: address("198.51.100.7:40000"),
                vip: address("192.0.2.1:80"),
                backends: [address("10.0.0.2:8080"), address("10.0.0.3:8081")],
                source: address("10.0.0.1:0").ip(),
            },
            Self {
                client: address("[2001:db8:1::7]:40000"),
                vip: address("[2001:db8:2::1]:80"),
                backends: [address("[2001:db8:3::2]:8080"), address("[2001:db8:3::3]:8081")],
                source: address("[2001:db8:3::1]:0").ip(),
            },
        ]
    }

    /// Puts the listener and its backends into the maps; returns the service id.
    pub(crate) fn listen(&self, object: &mut Object, proto: u8) -> u32 {
        let backends = self.backends.map(|backend| object.backend(backend, self.source));
        object.listen(proto, self.vip, &backends)
    }

    pub(crate) fn client_sends(&self, segment: &Tcp<'_>) -> Vec<u8> {
        frame::tcp(self.client, self.vip, segment)
    }

    /// The client's SYN; returns the way from us to the backend.
    pub(crate) fn syn(&self, object: &mut Object) -> Ends {
        self.translated(object, &self.client_sends(&Tcp::new(SYN)))
    }

    /// Runs the frame and expects it to be translated and sent on.
    pub(crate) fn translated(&self, object: &mut Object, frame: &[u8]) -> Ends {
        let outcome = object.run(frame);
        assert_eq!(outcome.action, REDIRECT, "not sent on");
        let ends = frame::ends(&outcome.frame);
        assert_eq!(ends.hops, TTL - 1, "one hop less");
        ends
    }

    /// SYN, SYN-ACK, ACK; returns the way from us to the backend.
    pub(crate) fn handshake(&self, object: &mut Object) -> Ends {
        let way = self.syn(object);
        let back = self.translated(object, &answer(way));
        assert_eq!((back.source, back.destination), (self.vip, self.client));
        let ack = Tcp::new(ACK).acknowledging(ANSWER.wrapping_add(1));
        assert_eq!(self.translated(object, &self.client_sends(&ack)), way);
        way
    }

    pub(crate) fn with_client_port(&self, port: u16) -> Self {
        let client = SocketAddr::new(self.client.ip(), port);
        Self { client, ..*self }
    }
}

/// The backend's answer to a SYN that came this way.
pub(crate) fn answer(way: Ends) -> Vec<u8> {
    backend_sends(way, &Tcp::new(SYN_ACK).sequence(ANSWER).acknowledging(1_001))
}

pub(crate) fn backend_sends(way: Ends, segment: &Tcp<'_>) -> Vec<u8> {
    frame::tcp(way.destination, way.source, segment)
}

pub(crate) fn passes(object: &mut Object, frame: &[u8]) {
    let outcome = object.run(frame);
    assert_eq!(outcome.action, PASS, "not left to the stack");
    assert_eq!(outcome.frame, frame, "changed and left to the stack");
}

pub(crate) fn established(object: &mut Object) -> Vec<(FlowKey, FlowValue)> {
    object.entries(maps::FLOWS)
}

pub(crate) fn half_open(object: &mut Object) -> Vec<(FlowKey, FlowValue)> {
    object.entries(maps::HALF_OPEN)
}
