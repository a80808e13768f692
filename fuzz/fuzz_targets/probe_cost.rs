// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as payload that is expensive to parse: no packet costs more than eight ordinary ones of its kind.

#![no_main]

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use libfuzzer_sys::fuzz_target;
use ringtap_probe::fuzzing::cost::{MAX_PERCENT, assert_ordinary};

const STEPS: usize = 64;

/// One counter for each step of the cost. libFuzzer takes them for coverage, so that it keeps what costs more than
/// the inputs before.
#[unsafe(link_section = "__libfuzzer_extra_counters")]
static COSTS: [AtomicU8; STEPS] = [const { AtomicU8::new(0) }; STEPS];

fuzz_target!(|input: &[u8]| {
    let percent = assert_ordinary(input);
    let step = percent * 64 / MAX_PERCENT;
    let step = usize::try_from(step).unwrap_or(usize::MAX).min(STEPS - 1);
    COSTS[step].store(1, Relaxed);
});
