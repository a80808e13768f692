// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader that writes anything into its control region costs the others nothing.
//!
//! The body is that of a property test in `crates/serve/ringtap-hub/tests/hostile/`.

#![no_main]

#[path = "../../crates/serve/ringtap-hub/tests/hostile/distributor.rs"]
mod distributor;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    distributor::run(input);
});
