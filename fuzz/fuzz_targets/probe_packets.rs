// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as packets of the probe: no panic, each packet in one record, bounded memory for payload.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| ringtap_probe::fuzzing::meter(input));
