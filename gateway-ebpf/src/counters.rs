//! Per-CPU counters: no atomics, since each CPU writes its own and these programs do not interrupt each other.

use gateway_common::abi::{Counter, ServiceCounters};

use crate::tables::{COUNTERS, SERVICE_COUNTERS};

#[inline(always)]
pub(crate) fn count(counter: Counter) {
    if let Some(value) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: the kernel gave a valid pointer to this CPU's element.
        unsafe { *value = (*value).wrapping_add(1) };
    }
}

#[inline(always)]
fn with_service(service: u32, change: impl FnOnce(&mut ServiceCounters)) {
    if let Some(counters) = SERVICE_COUNTERS.get_ptr_mut(service) {
        // SAFETY: the kernel gave a valid pointer to this CPU's element, and nothing else refers to it.
        change(unsafe { &mut *counters });
    }
}

#[inline(always)]
pub(crate) fn flow_opened(service: u32) {
    count(Counter::Opened);
    with_service(service, |counters| counters.flows = counters.flows.wrapping_add(1));
}

#[inline(always)]
pub(crate) fn translated(service: u32, towards_client: bool, bytes: u32) {
    count(Counter::Translated);
    with_service(service, |counters| {
        let (packets, total) = if towards_client {
            (&mut counters.sent_packets, &mut counters.sent_bytes)
        } else {
            (&mut counters.received_packets, &mut counters.received_bytes)
        };
        *packets = packets.wrapping_add(1);
        *total = total.wrapping_add(u64::from(bytes));
    });
}
