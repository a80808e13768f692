// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pool and a control region of any bytes: they are read or refused.
//!
//! The body is that of a property test in `crates/serve/ringtap-client/tests/hostile/`.

#![no_main]

#[path = "../../crates/serve/ringtap-client/tests/hostile/regions.rs"]
mod regions;
#[path = "../../crates/serve/ringtap-client/tests/hostile/region.rs"]
mod region;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    region::run(input);
});
