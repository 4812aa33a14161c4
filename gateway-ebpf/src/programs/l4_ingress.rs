//! TC classifier: full NAT of the TCP and UDP listeners that the agent has put into the map.

use aya_ebpf::bindings::TC_ACT_UNSPEC;
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use gateway_common::abi::{TCP, UDP};
use gateway_common::parse::{self, ICMP, ICMPV6, Packet, Part, TcpHeader, UdpHeader};

use crate::flows::{self, Segment};
use crate::packet::Frame;
use crate::tables::PACKET;
use crate::{fragments, icmp};

/// Whatever is not ours goes on as if this program were not there: to the next program, then to the stack.
#[classifier]
pub(crate) fn l4_ingress(ctx: TcContext) -> i32 {
    ingress(Frame::new(&ctx)).unwrap_or(TC_ACT_UNSPEC)
}

#[inline(always)]
fn ingress(frame: Frame) -> Option<i32> {
    let parsed = frame.parse()?;
    // SAFETY: this CPU's only element, and nothing else on this CPU uses it until the program ends.
    let packet = unsafe { &mut *PACKET.get_ptr_mut(0)? };
    *packet = parsed;
    if packet.hop_limit() <= 1 {
        return None;
    }
    if packet.part == Part::Later {
        return fragments::later(frame, packet);
    }
    let segment = match packet.key.proto {
        TCP => tcp(frame, packet)?,
        UDP => udp(frame, packet)?,
        ICMP if packet.is_v4 => return icmp::v4(frame, packet),
        ICMPV6 if !packet.is_v4 => return icmp::v6(frame, packet),
        _ => return None,
    };
    let value = flows::entry(frame, packet, &segment);
    if packet.part == Part::First && !fragments::admit_first(packet, value.as_ref()) {
        return None;
    }
    Some(frame.forward(packet, &value?))
}

#[inline(always)]
fn tcp(frame: Frame, packet: &mut Packet) -> Option<Segment> {
    let header = frame.load::<TcpHeader>(packet.l4_offset)?;
    if !parse::tcp_is_sound(&header, packet) {
        return None;
    }
    packet.key.source_port_be = header.source_port_be;
    packet.key.destination_port_be = header.destination_port_be;
    Some(Segment {
        flags: header.flags,
        sequence: u32::from_be(header.sequence_be),
        acknowledgment: u32::from_be(header.acknowledgment_be),
    })
}

#[inline(always)]
fn udp(frame: Frame, packet: &mut Packet) -> Option<Segment> {
    let header = frame.load::<UdpHeader>(packet.l4_offset)?;
    if !parse::udp_is_sound(&header, packet) {
        return None;
    }
    packet.key.source_port_be = header.source_port_be;
    packet.key.destination_port_be = header.destination_port_be;
    Some(Segment::default())
}
