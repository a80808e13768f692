// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bits, buckets and rules.

use std::num::NonZeroU32;

use ringtap_filter::{FilterTime, Headers, Instruction};
use ringtap_pool::distributor::Policy;

use super::*;
use crate::limits::Limits;

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

fn member(subscription: u64, own: Program) -> Member {
    Member::new(SubscriptionId(subscription), None, own, Delivery::Shared)
}

fn member_of(subscription: u64, uid: u32, own: Program) -> Member {
    Member::new(
        SubscriptionId(subscription),
        Some(uid),
        own,
        Delivery::Shared,
    )
}

fn limits() -> Limits {
    Limits {
        filter_percent_per_user: NonZeroU32::new(50).unwrap(),
        ..Limits::default()
    }
}

fn membership() -> Membership {
    let balanced = Group {
        division: Balance::Flow(Headers::Outer).into(),
        max_members: 4,
        ..Group::new("ids")
    };
    Membership::new(vec![Group::new("all"), balanced], limits(), HashSeed(0))
}

#[test]
fn the_limits_of_the_verifiers_work_are_those_of_the_hub() {
    let limits = Limits {
        filter_path_steps: NonZeroU32::new(7).unwrap(),
        filter_verifier_steps: NonZeroU32::MIN,
        ..Limits::default()
    };
    let groups = vec![Group::new("all")];
    let membership = Membership::new(groups, limits, HashSeed(0));
    let verifier = membership.rules().verifier;
    assert_eq!((verifier.path_steps, verifier.steps), (7, 1));
}

/// The masks of all buckets of the first rule.
fn masks(membership: &Membership) -> Vec<u64> {
    let members = &membership.rules().each[0].members;
    (0..BUCKETS).map(|bucket| members.mask_of(bucket)).collect()
}

fn owned(membership: &Membership, subscription: u64) -> usize {
    let share = membership.share(SubscriptionId(subscription)).unwrap();
    let has = |mask: &u64| *mask == share.mask | share.group;
    masks(membership).into_iter().filter(has).count()
}

#[test]
fn readers_without_a_filter_share_one_rule() {
    let mut membership = membership();
    membership
        .join("all", member(1, Program::everything()))
        .unwrap();
    membership.join("all", member(2, longer_than(100))).unwrap();
    membership
        .join("all", member(3, Program::everything()))
        .unwrap();
    let rules = membership.rules().each;
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0].members.mask_of(0), 0b101);
    assert!(rules[0].filter.takes_everything());
    assert_eq!(rules[1].members.mask_of(0), 0b010);
    let share = membership.share(SubscriptionId(2)).unwrap();
    assert_eq!((share.mask, share.rule), (0b010, Ok(1)));
}

#[test]
fn a_group_is_shared_out_evenly_whoever_comes_and_goes() {
    let mut membership = membership();
    for subscription in 1..=3 {
        membership
            .join("ids", member(subscription, Program::everything()))
            .unwrap();
    }
    let shares: Vec<_> = (1..=3)
        .map(|subscription| owned(&membership, subscription))
        .collect();
    assert_eq!(shares.iter().sum::<usize>(), BUCKETS);
    assert!(shares.iter().all(|share| (682..=683).contains(share)));
    let before = masks(&membership);
    membership.leave(SubscriptionId(2));
    assert_eq!([owned(&membership, 1), owned(&membership, 3)], [1024, 1024]);
    let after = masks(&membership);
    let moved = before.iter().zip(after.iter()).filter(|(a, b)| a != b);
    assert_eq!(moved.count(), 683, "only the leaver's share moves");
}

#[test]
fn with_any_number_of_members_none_has_three_percent_more_than_the_mean() {
    let group = Group {
        division: Balance::Flow(Headers::Outer).into(),
        ..Group::new("ids")
    };
    let mut membership = Membership::new(vec![group], limits(), HashSeed(0));
    // One bit is the group's.
    for members in 1..=62 {
        let joined = membership.join("ids", member(members, Program::everything()));
        joined.unwrap();
        let shares = (1..=members).map(|member| membership.buckets_of(SubscriptionId(member)));
        let most = u64::from(shares.max().unwrap());
        assert!(
            most * members * 100 <= BUCKETS as u64 * 103,
            "{most} of {members} members"
        );
    }
}

#[test]
fn all_packets_of_a_balanced_group_have_its_bit_until_it_is_empty() {
    let mut membership = membership();
    let join = |membership: &mut Membership, subscription| {
        let subscription = SubscriptionId(subscription);
        let joined = membership.join("ids", member(subscription.0, Program::everything()));
        joined.unwrap();
        membership.share(subscription).unwrap()
    };
    let (one, other) = (join(&mut membership, 1), join(&mut membership, 2));
    assert_eq!(
        (one.group, one.group & (one.mask | other.mask)),
        (other.group, 0)
    );
    let all = masks(&membership);
    assert!(all.iter().all(|mask| mask & one.group == one.group));
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
            .join("ids", member(subscription, Program::everything()))
            .unwrap();
    }
    let more = membership.join("ids", member(5, Program::everything()));
    let expected = "readers: 5 is more than the 4 that group \"ids\" allows";
    assert_eq!(more, Err(Refused::new(Refusal::TooMuch, expected)));
    membership.begin_to_leave(SubscriptionId(2));
    let more = membership.join("ids", member(5, Program::everything()));
    assert_eq!(more, Ok(()), "a member that leaves takes nobody's place");
    let mask = |subscription| membership.share(SubscriptionId(subscription)).unwrap().mask;
    assert_ne!(mask(2), mask(5), "its relay still reads");
    let unknown = membership.join("web", member(5, Program::everything()));
    assert_eq!(unknown, Err(not_subscribed()));
}

#[test]
fn the_hundredth_reader_runs_its_filter_itself() {
    let mut membership = membership();
    for subscription in 0..100 {
        membership
            .join("all", member(subscription, longer_than(64)))
            .unwrap();
    }
    assert_eq!(membership.rules().each.len(), 64);
    let share = membership.share(SubscriptionId(99)).unwrap();
    assert_eq!(share.mask, 1 << 63);
    assert!(share.rule.is_err());
    assert_eq!(membership.share(SubscriptionId(62)).unwrap().rule, Ok(62));
    membership.leave(SubscriptionId(5));
    membership
        .join("all", member(100, Program::everything()))
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
            .join("all", member(subscription, longer_than(64)))
            .unwrap();
    }
    let rules = membership.rules().each;
    assert_eq!(rules.len(), 64);
    assert!(rules.iter().all(|rule| !rule.filter.takes_everything()));
    membership.join("all", member(64, longer_than(64))).unwrap();
    let rules = membership.rules().each;
    assert!(
        rules[63].filter.takes_everything(),
        "two share the last bit"
    );
}

#[test]
fn an_empty_hub_wants_nothing() {
    assert!(membership().rules().each.is_empty());
}

#[test]
fn a_members_own_filter_in_a_balanced_group_is_its_own_affair() {
    let mut membership = membership();
    membership.join("ids", member(1, longer_than(64))).unwrap();
    assert_eq!(
        membership.share(SubscriptionId(1)).unwrap().rule,
        Err(NoRule::Balanced)
    );
    assert!(membership.rules().each[0].filter.takes_everything());
}

/// A filter that runs this many instructions.
fn of_steps(steps: usize) -> Program {
    let mut all = vec![0x0087; steps - 1];
    all.push(1 << 32 | 0x06);
    Program::from_entries(&all).unwrap()
}

fn looping() -> Program {
    Program::from_entries(&[0x15, 0x07, 0x60, 0xffff_fffc_0000_0005, 6]).unwrap()
}

/// Why the filter of a subscription does not run in the source.
fn reason(membership: &Membership, subscription: u64) -> Option<String> {
    let share = membership.share(SubscriptionId(subscription)).unwrap();
    share.rule.err().map(|why| why.to_string())
}

#[test]
fn filters_with_too_much_work_run_in_their_readers() {
    let mut membership = membership();
    for (subscription, filter) in [(1, looping()), (2, of_steps(700)), (3, of_steps(500))] {
        let joined = membership.join("all", member(subscription, filter));
        joined.unwrap();
    }
    assert!(reason(&membership, 1).unwrap().contains("protochain"));
    assert!(reason(&membership, 2).unwrap().contains("filter_percent"));
    assert_eq!(reason(&membership, 3), None);
    let rules = membership.rules().each;
    assert_eq!(rules.len(), 2, "the first two get everything by one rule");
    assert!(rules[0].filter.takes_everything());
    assert_eq!(rules[0].members.mask_of(0), 0b011);
    // Filters of root and of the hub's own user have no limit together.
    for subscription in 4..=10 {
        let joined = membership.join("all", member(subscription, of_steps(511)));
        joined.unwrap();
        assert_eq!(reason(&membership, subscription), None, "{subscription}");
    }
    let joined = membership.join("all", member_of(11, 1000, of_steps(20)));
    joined.unwrap();
    assert_eq!(
        reason(&membership, 11),
        None,
        "they take nothing from users"
    );
}

#[test]
fn one_user_takes_a_share_of_the_time_and_leaves_the_rest_to_others() {
    let mut membership = membership();
    // Each takes 5 % for its rule, and 0.6 % for an instruction.
    for subscription in 1..=5 {
        let joined = membership.join("all", member_of(subscription, 65_534, of_steps(12)));
        joined.unwrap();
    }
    let greedy: Vec<_> = (1..=5).map(|one| reason(&membership, one)).collect();
    assert_eq!(&greedy[..4], [const { None }; 4]);
    let why = greedy[4].as_ref().unwrap();
    assert!(why.contains("filter_percent_per_user"), "{why}");
    membership
        .join("all", member_of(6, 1000, of_steps(50)))
        .unwrap();
    assert_eq!(reason(&membership, 6), None);
    // A change is admitted like a new member, without the filter that it replaces.
    let set = |membership: &mut Membership, subscription, steps| {
        let set = membership.set_filter(SubscriptionId(subscription), of_steps(steps));
        set.unwrap();
        reason(membership, subscription)
    };
    assert_eq!(set(&mut membership, 4, 1), None);
    assert!(reason(&membership, 5).is_some(), "decided when it came");
    assert_eq!(set(&mut membership, 5, 1), None);
}

#[test]
fn eight_users_together_take_no_more_time_than_users_may() {
    let mut membership = membership();
    let mut subscription = 0;
    for uid in 1..=8 {
        for steps in [40, 20, 10, 5, 2, 1] {
            subscription += 1;
            let joined = membership.join("all", member_of(subscription, uid, of_steps(steps)));
            joined.unwrap();
        }
    }
    let times = membership.times_in_source(FilterOwner::User(1));
    assert!(times.user <= FilterTime::from_percent(50), "{times:?}");
    assert!(times.users <= FilterTime::from_percent(200), "{times:?}");
    assert!(times.users > FilterTime::from_percent(150), "{times:?}");
    let refused = (1..=subscription).filter_map(|one| reason(&membership, one));
    let refused: Vec<_> = refused.collect();
    let by_all = refused
        .iter()
        .filter(|why| why.contains("filter_percent_of_users"));
    assert!(by_all.count() > 10, "{refused:?}");
}

#[test]
fn a_guests_filters_count_like_those_of_a_user() {
    let mut membership = membership();
    let of_guest = |subscription, pid, steps| member(subscription, of_steps(steps)).of_guest(pid);
    membership.join("all", of_guest(1, 7, 60)).unwrap();
    membership.join("all", of_guest(2, 7, 60)).unwrap();
    membership.join("all", of_guest(3, 8, 60)).unwrap();
    membership.join("all", member(4, of_steps(60))).unwrap();
    assert_eq!(reason(&membership, 1), None);
    let why = reason(&membership, 2).unwrap();
    assert!(why.contains("filter_percent_per_user"), "{why}");
    assert_eq!(reason(&membership, 3), None, "another guest");
    assert_eq!(reason(&membership, 4), None, "root's own");
}

#[test]
fn private_delivery_of_too_much_work_is_refused() {
    let mut membership = membership();
    let private = |own| Member::new(SubscriptionId(1), None, own, Delivery::Private);
    for (filter, told) in [(looping(), "protochain"), (of_steps(700), "filter_percent")] {
        let refused = membership.join("all", private(filter.clone()));
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, Refusal::BadFilter);
        assert!(refused.message.contains(told), "{refused}");
        membership.join("all", private(of_steps(9))).unwrap();
        let changed = membership.set_filter(SubscriptionId(1), filter);
        assert_eq!(changed.unwrap_err(), refused);
        let kept = membership.share(SubscriptionId(1)).unwrap();
        assert_eq!((kept.filter, kept.rule), (of_steps(9), Ok(0)));
        membership.leave(SubscriptionId(1));
    }
}

#[test]
fn one_user_cannot_take_the_bits_of_others() {
    let mut membership = membership();
    for subscription in 0..64 {
        let joined = membership.join("all", member_of(subscription, 1000, longer_than(9)));
        assert_eq!(joined, Ok(()));
    }
    // Readers without a bit can have no rules, and learn whose limit it is.
    let without = membership.flow_members(SubscriptionId(63)).unwrap_err();
    let share =
        "the user has 42 of the bits of a packet's mask, its whole share (mask_bits_per_user";
    assert!(without.message.contains(share), "{without}");
    let refused = membership.join("ids", member_of(64, 1000, Program::everything()));
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("mask_bits_per_user): 43 is more than the 42"),
        "{refused}"
    );
    for subscription in 65..69 {
        let joined = membership.join("ids", member_of(subscription, 1001, Program::everything()));
        assert_eq!(joined, Ok(()));
    }
}

#[test]
fn known_readers_of_one_user_leave_no_bits_for_others() {
    let group = Group {
        division: Balance::RoundRobin.into(),
        ..Group::new("ids")
    };
    let limits = Limits::for_readers(NonZeroU32::new(60).unwrap());
    let mut membership = Membership::new(vec![group], limits, HashSeed(0));
    for subscription in 0..60 {
        let joined = membership.join("ids", member_of(subscription, 1000, longer_than(9)));
        assert_eq!(joined, Ok(()), "{subscription}");
    }
}

/// The members' packets when each of these buckets gets one, in a group of four.
fn of_four(balance: Balance, buckets: impl Iterator<Item = usize>) -> Vec<usize> {
    let group = Group {
        division: balance.into(),
        ..Group::new("ids")
    };
    let mut membership = Membership::new(vec![group], limits(), HashSeed(0));
    for subscription in 1..=4 {
        let joined = membership.join("ids", member(subscription, Program::everything()));
        joined.unwrap();
    }
    let masks = masks(&membership);
    let found: Vec<_> = buckets.map(|bucket| masks[bucket % BUCKETS]).collect();
    let of = |subscription| {
        let share = membership.share(SubscriptionId(subscription)).unwrap();
        let own = found.iter().filter(|mask| **mask & share.mask != 0);
        own.count()
    };
    (1..=4).map(of).collect()
}

#[test]
fn packets_in_turn_and_vlans_are_divided_evenly() {
    for packets in [4, 100, 1000, 100_000] {
        let shares = of_four(Balance::RoundRobin, 0..packets);
        assert_eq!(shares, [packets / 4; 4], "{packets} packets in turn");
    }
    for first in [1, 10, 100] {
        let shares = of_four(Balance::Vlan, first..first + 4);
        assert!(
            shares.iter().all(|share| *share <= 2),
            "VLANs from {first} on"
        );
        let shares = of_four(Balance::Vlan, first..first + 40);
        assert!(
            shares.iter().all(|share| (9..=11).contains(share)),
            "{shares:?}"
        );
    }
    let steps = of_four(Balance::Vlan, (1..=8).map(|number| number * 100));
    assert!(
        steps.iter().all(|share| (1..=3).contains(share)),
        "{steps:?}"
    );
}

#[test]
fn a_reload_changes_what_readers_do_not_notice_and_names_the_rest() {
    let lanes = Group {
        division: Division::Lanes,
        ..Group::new("lanes")
    };
    let groups = vec![Group::new("all"), Group::new("old"), lanes.clone()];
    let mut membership = Membership::new(groups, limits(), HashSeed(0));
    membership
        .join("all", member(1, Program::everything()))
        .unwrap();
    let more_credit = Group {
        credit_chunks: Some(5),
        policy: Policy::Cut { snap_bytes: 96 },
        ..Group::new("all")
    };
    let notes = membership.replace_groups(vec![more_credit, Group::new("new"), lanes.clone()]);
    assert!(notes.is_empty(), "{notes:?}");
    let names: Vec<_> = membership
        .open_groups()
        .map(|one| one.name.clone())
        .collect();
    assert_eq!(names, ["all", "lanes", "new"]);
    assert_eq!(membership.group("all").unwrap().credit_chunks, Some(5));

    let filtered = |name| Group {
        filter: longer_than(100).into(),
        ..Group::new(name)
    };
    let more_lanes = Group {
        offload_percent: Some(60),
        ..lanes
    };
    let notes = membership.replace_groups(vec![filtered("all"), filtered("new"), more_lanes]);
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(
        notes[0].contains("group all: unchanged: its filter"),
        "{notes:?}"
    );
    assert!(notes[1].contains("group lanes: unchanged"), "{notes:?}");
    let filter = |name| {
        membership
            .group(name)
            .unwrap()
            .filter
            .program()
            .takes_everything()
    };
    assert_eq!((filter("all"), filter("new")), (true, false));
}

#[test]
fn the_users_of_a_group_change_also_if_the_rest_of_it_cannot() {
    let mut old = Group::new("all");
    old.access.uids = vec![1, 2];
    let mut membership = Membership::new(vec![old], limits(), HashSeed(0));
    let reader = member(1, Program::everything());
    membership.join("all", reader).expect("there is room");
    let mut new = Group {
        filter: longer_than(100).into(),
        ..Group::new("all")
    };
    new.access.uids = vec![2];
    let notes = membership.replace_groups(vec![new]);
    assert_eq!(notes.len(), 1, "{notes:?}");
    let group = membership.group("all").unwrap();
    assert_eq!(
        (
            &group.access.uids[..],
            group.filter.program().takes_everything()
        ),
        (&[2][..], true)
    );
}

#[test]
fn a_group_that_gets_packets_by_rules_keeps_its_bit_and_gets_them_while_it_has_readers() {
    let by_rule = |name| Group {
        by_rule: true,
        filter: crate::group::GroupFilter::new("by-rule", Program::nothing()),
        ..Group::new(name)
    };
    let groups = vec![Group::new("all"), by_rule("out"), by_rule("suspects")];
    let mut membership = Membership::new(groups, limits(), HashSeed(0));
    let suspects = "suspects".parse().unwrap();
    let bit = membership.by_rule_bit(&suspects).unwrap();
    let adds = |membership: &Membership| membership.flow_settings().map_or(0, |it| it.adds);
    for _ in 0..2 {
        for subscription in [1, 2] {
            let reader = member_of(subscription, 1000, Program::everything());
            membership.join("suspects", reader).unwrap();
            let share = membership.share(SubscriptionId(subscription)).unwrap();
            assert_eq!((share.mask, share.counting_mask()), (bit, bit));
        }
        membership.has_table = true;
        assert_eq!(adds(&membership), bit);
        // Filter, cut-off and rules would choose packets that rules have chosen already.
        let filtered = membership.join("suspects", member(3, longer_than(9)));
        assert!(filtered.unwrap_err().message.contains("without a filter"));
        assert!(membership.flow_members(SubscriptionId(1)).is_err());
        for subscription in [1, 2] {
            membership.leave(SubscriptionId(subscription));
        }
        assert_eq!(adds(&membership), 0);
        assert_eq!(membership.by_rule_bit(&suspects), Some(bit));
    }
    // Readers that only mark packets by the group.
    let marking = member(4, Program::everything()).marking(bit);
    membership.join("all", marking).unwrap();
    assert_eq!(adds(&membership), bit);
    assert_eq!(membership.share(SubscriptionId(4)).unwrap().marks, bit);
    // A user's readers there take none of its bits.
    for subscription in 10..110 {
        let reader = member_of(subscription, 1001, Program::everything());
        membership.join("suspects", reader).unwrap();
    }
    membership
        .join("all", member_of(9, 1001, longer_than(9)))
        .unwrap();
    assert!(membership.flow_members(SubscriptionId(9)).is_ok());
    // A group that a reload removes gets no more, and its bit is no other's.
    membership.replace_groups(vec![Group::new("all"), by_rule("out")]);
    assert_eq!(membership.by_rule_bit(&suspects), None);
    membership.replace_groups(vec![Group::new("all"), by_rule("new")]);
    let new = membership.by_rule_bit(&"new".parse().unwrap());
    assert!(new.is_some_and(|new| new != bit), "{new:?}");
}
