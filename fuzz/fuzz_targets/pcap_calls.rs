// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any sequence of calls of libpcap's interface, on handles of every kind and age.
//!
//! The body is that of a property test in `crates/front/ringtap-pcap/tests/calls/`.

#![no_main]

#[path = "../../crates/front/ringtap-pcap/tests/calls/body.rs"]
mod body;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _calls = body::run(input);
});
