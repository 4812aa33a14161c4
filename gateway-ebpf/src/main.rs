//! The kernel programs: one object for all.
//!
//! They are glue between the kernel's helpers and `gateway_common`, which holds every decision and its tests.
//!
//! **Rules for all of it**, so that one object loads on kernels from 5.10 on: no callbacks, no atomics that fetch, no
//! newer helpers, no global functions with pointers; loops are bounded by constants; nothing can panic.
#![no_std]
#![no_main]

mod counters;
mod flows;
mod fragments;
mod icmp;
mod packet;
mod programs;
mod send;
mod tables;

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The helpers that translate packets are for programs under the GPL.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 4] = *b"GPL\0";
