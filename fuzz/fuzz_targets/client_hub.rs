// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub that answers and lends anything: the reader fails with an error, or reads.
//!
//! The body is that of a property test in `crates/serve/ringtap-client/tests/hostile/`.

#![no_main]

#[path = "../../crates/serve/ringtap-client/tests/hostile/hub.rs"]
mod hub;
#[path = "../../crates/serve/ringtap-client/tests/hostile/regions.rs"]
mod regions;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _packets = hub::run(input);
});
