// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that nobody found are named by what the tables counted.

use super::*;

fn withheld(packets: u64, other_members: u64) -> Withheld {
    Withheld {
        packets,
        other_members,
        ..Withheld::default()
    }
}

fn terms(named: &Named) -> [u64; 3] {
    [named.shunted, named.other_members, named.filtered]
}

#[test]
fn no_term_falls_and_all_are_exact_once_everything_is_read() {
    // What a reader has read, and what was withheld: by turns of 2 shunted, 1 of another member, 4 filtered. The
    // tables count a packet up to 30 turns before the reader passes it.
    for ahead in [0, 1, 7, 30] {
        let mut named = Named::default();
        let mut last = [0; 3];
        for turn in 1..=100_u64 {
            let counted = (turn + ahead).min(100);
            named.divide(7 * turn, withheld(2 * counted, counted));
            let now = terms(&named);
            assert_eq!(now.iter().sum::<u64>(), 7 * turn, "it balances");
            assert!(
                now.iter().zip(last).all(|(now, last)| *now >= last),
                "{last:?} {now:?}"
            );
            last = now;
        }
        assert_eq!(terms(&named), [200, 100, 400], "{ahead} turns ahead");
    }
}

#[test]
fn packets_that_were_withheld_before_the_reader_began_are_not_its() {
    let count = |packets, bytes| WithheldCounts { packets, bytes };
    let before = [count(5, 300), count(9, 540)];
    let now = [count(7, 420), count(20, 1200)];
    let found = since(&now, &before);
    assert_eq!(
        (found.packets, found.bytes, found.other_members),
        (2, 120, 9)
    );
    assert_eq!(
        since(&before, &now),
        Withheld::default(),
        "a table that began again"
    );
}
