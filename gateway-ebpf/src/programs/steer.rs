//! `sk_lookup`: connections to listeners in the map go to their listening sockets, wherever these are bound.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::{bpf_sk_lookup, sk_action};
use aya_ebpf::macros::sk_lookup;
use aya_ebpf::programs::SkLookupContext;
use gateway_common::abi::{Counter, ListenerKey, TCP};
use gateway_common::address::Address;

use crate::counters::count;
use crate::tables::{SOCKETS, STEERED};

const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;

/// Lookups for anything else are not touched.
#[sk_lookup]
pub(crate) fn steer(ctx: SkLookupContext) -> u32 {
    let lookup: *const bpf_sk_lookup = ctx.as_ptr().cast_const().cast();
    let Some(key) = listener_key(lookup) else {
        return sk_action::SK_PASS;
    };
    let Some(steered) = STEERED.get_ptr(&key) else {
        return sk_action::SK_PASS;
    };
    // SAFETY: the kernel keeps the element's memory while the program runs.
    let socket = unsafe { (*steered).socket };
    if SOCKETS.redirect_sk_lookup(&ctx, socket, 0).is_ok() {
        count(Counter::Steered);
        return sk_action::SK_PASS;
    }
    // No socket is registered: the worker is away. Another listener on the port must not get what is ours; the stack
    // answers as if nobody listened.
    count(Counter::SteerDropped);
    sk_action::SK_DROP
}

#[inline(always)]
fn listener_key(lookup: *const bpf_sk_lookup) -> Option<ListenerKey> {
    // All fields before any branch, and volatile: the compiler would else make one load of two, from a chosen address, and
    // the verifier refuses to read the context that way. An address of the other family reads as 0.
    // SAFETY: the context outlives the program's run.
    let (protocol, family, port, v4, v6) = unsafe {
        let v6 = (&raw const (*lookup).local_ip6).cast::<u32>();
        (
            (&raw const (*lookup).protocol).read_volatile(),
            (&raw const (*lookup).family).read_volatile(),
            (&raw const (*lookup).local_port).read_volatile(),
            (&raw const (*lookup).local_ip4).read_volatile(),
            [
                v6.read_volatile(),
                v6.add(1).read_volatile(),
                v6.add(2).read_volatile(),
                v6.add(3).read_volatile(),
            ],
        )
    };
    let address = match family {
        AF_INET => Address::from_v4_word(v4),
        AF_INET6 => Address::from_words(v6),
        _ => return None,
    };
    // The kernel gives the local port in host byte order.
    (protocol == u32::from(TCP)).then_some(ListenerKey {
        address,
        port_be: (port as u16).to_be(),
        proto: TCP,
        reserved: 0,
    })
}
