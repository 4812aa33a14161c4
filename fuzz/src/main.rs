//! libFuzzer around the functions that state what must hold of each parser. `cargo xtask fuzz` builds and runs it.
//!
//! One binary for all of them: `WIRE_TARGET` names the one.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use wire_tests::targets::{TARGETS, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("WIRE_TARGET").unwrap_or_default();
    Target::named(&name).unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        panic!("WIRE_TARGET is {name:?}, and not one of {names:?}")
    })
});

fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
