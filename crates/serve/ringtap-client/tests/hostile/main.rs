// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hubs that lie, in memory and in messages, make a reader fail with an error and do no other harm.
//!
//! `fuzz/` runs the same bodies with bytes that a fuzzer chooses.

mod hub;
mod region;
mod regions;

use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_region_that_lies_is_read_or_refused(bytes in vec(any::<u8>(), 0..600)) {
        region::run(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_hub_that_lies_is_refused_or_read(bytes in vec(any::<u8>(), 0..400)) {
        hub::run(&bytes);
    }
}

#[test]
fn a_hub_that_does_not_lie_is_read() {
    assert!(hub::run(&[]) > 0, "zeros are no lies");
}
