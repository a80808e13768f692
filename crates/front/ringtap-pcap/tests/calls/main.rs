// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random sequences of calls, as the fuzz target `pcap_calls` makes them under AddressSanitizer.

mod body;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_calls_returns(input in proptest::collection::vec(any::<u8>(), 0..2000)) {
        body::run(&input);
    }
}

#[test]
fn some_of_the_sequences_read_packets() {
    let mut state = 1_u64;
    for _ in 0..200 {
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        };
        let input: Vec<_> = (0..1500).map(|_| next()).collect();
        body::run(&input);
    }
    let read = body::READ.load(std::sync::atomic::Ordering::Relaxed);
    assert!(read > 100, "{read} packets were read");
}
