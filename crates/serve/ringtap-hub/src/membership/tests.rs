// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bits, buckets and rules.

use ringtap_filter::{Headers, Instruction};

use super::*;

fn longer_than(bytes: u32) -> Program {
    let instruction = |code, jump_false, k| Instruction {
        code,
        jump_true: 0,
        jump_false,
        k,
    };
    // ld len; jgt #bytes; ret #1; ret #0
    Program::new(&[
        instruction(0x80, 0, 0),
        instruction(0x25, 1, bytes),
        instruction(0x06, 0, 1),
        instruction(0x06, 0, 0),
    ])
    .unwrap()
}

fn membership() -> Membership {
    let balanced = Group {
        balance: Balance::Flow(Headers::Outer),
        most_members: 4,
        ..Group::new("ids")
    };
    Membership::new(vec![Group::new("all"), balanced])
}

fn owned(membership: &Membership, subscription: u64) -> usize {
    let share = membership.share(SubscriptionId(subscription)).unwrap();
    let members = membership.rules().0[0].members.clone();
    let has = |members: &&u64| **members == share.mask | share.group;
    members.iter().filter(has).count()
}

#[test]
fn readers_without_a_filter_share_one_rule() {
    let mut membership = membership();
    membership
        .join("all", SubscriptionId(1), Program::everything())
        .unwrap();
    membership
        .join("all", SubscriptionId(2), longer_than(100))
        .unwrap();
    membership
        .join("all", SubscriptionId(3), Program::everything())
        .unwrap();
    let rules = membership.rules().0;
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0].members[0], 0b101);
    assert!(rules[0].filter.takes_everything());
    assert_eq!(rules[1].members[0], 0b010);
    let share = membership.share(SubscriptionId(2)).unwrap();
    assert_eq!((share.mask, share.rule), (0b010, Ok(1)));
}

#[test]
fn a_group_is_shared_out_evenly_whoever_comes_and_goes() {
    let mut membership = membership();
    for subscription in 1..=3 {
        membership
            .join("ids", SubscriptionId(subscription), Program::everything())
            .unwrap();
    }
    let shares: Vec<_> = (1..=3)
        .map(|subscription| owned(&membership, subscription))
        .collect();
    assert_eq!(shares.iter().sum::<usize>(), BUCKETS);
    assert!(shares.iter().all(|share| (85..=86).contains(share)));
    let before = membership.rules().0[0].members.clone();
    membership.leave(SubscriptionId(2));
    assert_eq!([owned(&membership, 1), owned(&membership, 3)], [128, 128]);
    let after = membership.rules().0[0].members.clone();
    let moved = before.iter().zip(after.iter()).filter(|(a, b)| a != b);
    assert_eq!(moved.count(), 85, "only the leaver's share moves");
}

#[test]
fn all_packets_of_a_balanced_group_have_its_bit_until_it_is_empty() {
    let mut membership = membership();
    let join = |membership: &mut Membership, subscription| {
        let subscription = SubscriptionId(subscription);
        let joined = membership.join("ids", subscription, Program::everything());
        joined.unwrap();
        membership.share(subscription).unwrap()
    };
    let (one, other) = (join(&mut membership, 1), join(&mut membership, 2));
    assert_eq!(
        (one.group, one.group & (one.mask | other.mask)),
        (other.group, 0)
    );
    let members = membership.rules().0[0].members.clone();
    assert!(members.iter().all(|mask| mask & one.group == one.group));
    membership.leave(SubscriptionId(1));
    assert_eq!(
        membership.share(SubscriptionId(2)).unwrap().group,
        one.group
    );
    membership.leave(SubscriptionId(2));
    assert_eq!(membership.used_bits, 0);
}

#[test]
fn a_group_that_is_full_or_unknown_is_refused() {
    let mut membership = membership();
    for subscription in 1..=4 {
        membership
            .join("ids", SubscriptionId(subscription), Program::everything())
            .unwrap();
    }
    let more = membership.join("ids", SubscriptionId(5), Program::everything());
    assert_eq!(more, Err(Full::Members(4)));
    let unknown = membership.join("web", SubscriptionId(5), Program::everything());
    assert_eq!(unknown, Err(Full::NoGroup));
}

#[test]
fn the_hundredth_reader_runs_its_filter_itself() {
    let mut membership = membership();
    for subscription in 0..100 {
        membership
            .join("all", SubscriptionId(subscription), longer_than(64))
            .unwrap();
    }
    assert_eq!(membership.rules().0.len(), 64);
    let share = membership.share(SubscriptionId(99)).unwrap();
    assert_eq!(share.mask, 1 << 63);
    assert!(share.rule.is_err());
    assert_eq!(membership.share(SubscriptionId(62)).unwrap().rule, Ok(62));
    membership.leave(SubscriptionId(5));
    membership
        .join("all", SubscriptionId(100), Program::everything())
        .unwrap();
    assert_eq!(
        membership.share(SubscriptionId(100)).unwrap().mask,
        1 << 5,
        "a bit that came free"
    );
}

#[test]
fn the_first_reader_without_a_bit_of_its_own_costs_nobody_anything() {
    let mut membership = membership();
    for subscription in 0..64 {
        membership
            .join("all", SubscriptionId(subscription), longer_than(64))
            .unwrap();
    }
    let rules = membership.rules().0;
    assert_eq!(rules.len(), 64);
    assert!(rules.iter().all(|rule| !rule.filter.takes_everything()));
    membership
        .join("all", SubscriptionId(64), longer_than(64))
        .unwrap();
    let rules = membership.rules().0;
    assert!(
        rules[63].filter.takes_everything(),
        "two share the last bit"
    );
}

#[test]
fn an_empty_hub_wants_nothing() {
    assert!(membership().rules().0.is_empty());
}

#[test]
fn a_members_own_filter_in_a_balanced_group_is_its_own_affair() {
    let mut membership = membership();
    membership
        .join("ids", SubscriptionId(1), longer_than(64))
        .unwrap();
    assert_eq!(
        membership.share(SubscriptionId(1)).unwrap().rule,
        Err(NOT_IN_SOURCE)
    );
    assert!(membership.rules().0[0].filter.takes_everything());
}
