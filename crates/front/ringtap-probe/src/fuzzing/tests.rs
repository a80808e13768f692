// SPDX-License-Identifier: MIT OR Apache-2.0
//! No packet costs much more than ordinary ones of its kind.

use proptest::prelude::*;

use super::cost::PayloadKind;
use super::hostile::{hostile, many_labels, ordinary};

/// Inputs that cost 20 to 80 times as much as ordinary packets, before work was limited.
const EXPENSIVE: [[u8; 40]; 5] = [
    // A name of many labels over TCP.
    [
        117, 172, 103, 99, 123, 204, 154, 26, 246, 44, 186, 152, 179, 41, 249, 148, 181, 250, 41,
        212, 11, 82, 101, 34, 15, 248, 63, 94, 45, 42, 215, 170, 196, 0, 46, 119, 77, 224, 210, 71,
    ],
    // Labels of bytes that are not UTF-8.
    [
        4, 109, 171, 31, 37, 171, 104, 206, 55, 58, 156, 232, 58, 88, 46, 171, 32, 112, 121, 253,
        162, 169, 121, 157, 93, 168, 208, 209, 242, 43, 109, 232, 29, 157, 46, 218, 139, 213, 54,
        175,
    ],
    // Thousands of ciphers.
    [
        230, 74, 212, 10, 179, 132, 183, 43, 226, 8, 15, 86, 59, 111, 11, 84, 78, 242, 81, 12, 180,
        242, 7, 187, 232, 70, 233, 237, 115, 236, 227, 100, 13, 57, 68, 200, 214, 94, 179, 206,
    ],
    // Many small records.
    [
        86, 144, 170, 42, 9, 76, 43, 4, 244, 62, 61, 92, 72, 89, 132, 214, 113, 114, 19, 15, 114,
        116, 178, 141, 217, 6, 28, 180, 123, 70, 218, 255, 15, 81, 115, 39, 44, 127, 96, 89,
    ],
    // A long head of a request, and then two bytes in each segment.
    [
        87, 75, 252, 244, 3, 45, 225, 122, 198, 163, 209, 149, 122, 145, 144, 159, 21, 82, 120,
        130, 112, 84, 181, 212, 203, 111, 59, 176, 39, 129, 13, 83, 187, 225, 69, 91, 104, 142, 82,
        138,
    ],
];

#[test]
fn answers_that_refer_to_one_name_of_many_labels_cost_as_much_as_ordinary_ones() {
    for records in [1, 15, 40, 90] {
        for kind in [2, 5, 12] {
            many_labels(records, kind).assert_ordinary();
        }
    }
}

#[test]
fn ordinary_payload_needs_no_more_work_than_allowed() {
    for kind in PayloadKind::ALL {
        for trace in ordinary(kind) {
            assert_eq!(trace.unread(), 0, "{trace:?}");
        }
    }
    let unread = [0, 15, 40, 90].map(|records| many_labels(records, 5).unread());
    assert_eq!(unread, [0, 1, 1, 1]);
}

#[test]
fn payload_that_was_expensive_costs_as_much_as_ordinary() {
    for input in EXPENSIVE {
        hostile(&input).assert_ordinary();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 32, ..ProptestConfig::default() })]

    #[test]
    fn no_packet_costs_more_than_eight_ordinary_ones_of_its_kind(
        input in prop::collection::vec(any::<u8>(), 24..48),
    ) {
        hostile(&input).assert_ordinary();
    }
}
