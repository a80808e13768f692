// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random sequences of calls, as the fuzz target `pcap_calls` makes them under AddressSanitizer.

mod body;

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use proptest::prelude::*;

/// Panics of the library, which it catches.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Makes the calls that these bytes choose; none may panic.
fn run(input: &[u8]) {
    static COUNTED: Once = Once::new();
    COUNTED.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Relaxed);
            usual(info);
        }));
    });
    body::run(input);
    assert_eq!(PANICS.load(Relaxed), 0, "a call panicked");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_calls_returns(input in proptest::collection::vec(any::<u8>(), 0..2000)) {
        run(&input);
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
        run(&input);
    }
    let read = body::READ.load(Relaxed);
    assert!(read > 100, "{read} packets were read");
}
