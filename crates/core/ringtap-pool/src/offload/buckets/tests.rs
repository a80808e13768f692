// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves of buckets, step by step, at made-up times.

use super::*;
use std::cell::Cell;

/// Member 1 is as busy as is said; a new owner is held back and let go when that is said.
struct Known {
    busy_percent: Cell<u32>,
    is_held_back: Cell<bool>,
    follows: Cell<bool>,
}

impl Members<u8> for Known {
    fn load(&self, member: u8) -> Load {
        let percent = if member == 1 {
            self.busy_percent.get()
        } else {
            0
        };
        Load { percent }
    }

    fn weigh(&self, _: u8, weights: &mut [u64; BUCKETS]) {
        weights.fill(1);
    }

    fn is_held_back(&self, _: u8) -> bool {
        self.is_held_back.get()
    }

    fn follows(&self, _: u8) -> bool {
        self.follows.get()
    }
}

const MEMBERS: [u8; 2] = [1, 2];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn begun() -> (Buckets<u8>, Known) {
    let mut buckets = Buckets::default();
    buckets.share_out(&MEMBERS);
    let known = Known {
        busy_percent: Cell::new(90),
        is_held_back: Cell::new(false),
        follows: Cell::new(true),
    };
    assert_eq!(
        buckets.due(&MEMBERS, 60, ms(50), &known),
        Some(Due::HoldBack(2))
    );
    (buckets, known)
}

fn of(buckets: &Buckets<u8>, member: u8) -> usize {
    let mut count = 0;
    for owner in buckets.owners() {
        count += usize::from(*owner == Some(member));
    }
    count
}

#[test]
fn buckets_change_hands_once_their_new_owner_is_held_back() {
    let (mut buckets, known) = begun();
    assert_eq!(buckets.due(&MEMBERS, 60, ms(51), &known), None);
    assert_eq!(
        (of(&buckets, 1), buckets.moved()),
        (128, 0),
        "nothing has moved yet"
    );
    known.is_held_back.set(true);
    let change = Due::Change { from: 1, to: 2 };
    assert_eq!(buckets.due(&MEMBERS, 60, ms(52), &known), Some(change));
    assert_eq!(
        (of(&buckets, 1), of(&buckets, 2), buckets.moved()),
        (96, 160, 32)
    );
    assert_eq!(buckets.due(&MEMBERS, 60, ms(53), &known), None);
    known.follows.set(false);
    assert_eq!(
        buckets.due(&MEMBERS, 60, ms(54), &known),
        Some(Due::Over(2))
    );
    assert!(!buckets.is_moving());
    assert_eq!(
        buckets.due(&MEMBERS, 60, ms(99), &known),
        None,
        "the next look is not due"
    );
    assert_eq!(
        buckets.due(&MEMBERS, 60, ms(100), &known),
        Some(Due::HoldBack(2))
    );
}

#[test]
fn neither_quiet_lanes_nor_a_stuck_member_are_waited_for_for_ever() {
    let (mut buckets, known) = begun();
    let change = Due::Change { from: 1, to: 2 };
    assert_eq!(buckets.due(&MEMBERS, 60, ms(100), &known), Some(change));
    let quiet = Due::LetGo(2, HeldBack::OnQuietLanes);
    assert_eq!(buckets.due(&MEMBERS, 60, ms(150), &known), Some(quiet));
    assert_eq!(buckets.due(&MEMBERS, 60, ms(1099), &known), None);
    let all = Due::LetGo(2, HeldBack::Anywhere);
    assert_eq!(buckets.due(&MEMBERS, 60, ms(1100), &known), Some(all));
    known.follows.set(false);
    assert_eq!(
        buckets.due(&MEMBERS, 60, ms(1100), &known),
        Some(Due::Over(2))
    );
}

#[test]
fn a_move_is_off_when_one_of_the_two_leaves() {
    for left in [[1], [2]] {
        let (mut buckets, known) = begun();
        buckets.share_out(&left);
        let off = Due::LetGo(2, HeldBack::Anywhere);
        assert_eq!(buckets.due(&left, 60, ms(51), &known), Some(off));
        assert_eq!((buckets.is_moving(), buckets.moved()), (false, 0));
        assert_eq!(of(&buckets, left[0]), BUCKETS);
    }
}

#[test]
fn nobody_moves_while_nobody_is_too_busy() {
    let (mut buckets, known) = (Buckets::default(), begun().1);
    buckets.share_out(&MEMBERS);
    known.busy_percent.set(60);
    for at in [50, 100, 150] {
        assert_eq!(buckets.due(&MEMBERS, 60, ms(at), &known), None);
    }
    known.busy_percent.set(61);
    assert_eq!(
        buckets.due(&MEMBERS, 60, ms(151), &known),
        None,
        "it was looked at just now"
    );
    assert_eq!(
        buckets.due(&MEMBERS, 60, ms(200), &known),
        Some(Due::HoldBack(2))
    );
}
