// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules for patterns of readers, groups and guests, without sources.

use ringtap_filter::hash::HashSeed;
use ringtap_filter::{Balance, Headers, Program};
use ringtap_ipc::protocol::Delivery;

use super::*;
use crate::group::Group;
use crate::limits::Limits;
use crate::membership::Member;

fn rule(port: u16) -> FlowRule<FlowPattern> {
    FlowRule {
        flow: format!("udp port {port}").parse().unwrap(),
        action: FlowAction::Ignore,
        lasts_ns: None,
    }
}

/// Readers 1 and 2 of user 7 and 3 of root in one group; 4 and 5 of root in a balanced one.
fn membership() -> Membership {
    let balanced = Group {
        division: Balance::Flow(Headers::Outer).into(),
        rules: vec![rule(1).into(), rule(100).into()],
        ..Group::new("ids")
    };
    let groups = vec![Group::new("all"), balanced];
    let mut membership = Membership::new(groups, Limits::default(), HashSeed(0));
    for (id, user, group) in [
        (1, Some(7), "all"),
        (2, Some(7), "all"),
        (3, None, "all"),
        (4, None, "ids"),
        (5, None, "ids"),
    ] {
        let (id, own) = (SubscriptionId(id), Program::everything());
        let joined = membership.join(group, Member::new(id, user, own, Delivery::Shared));
        joined.unwrap();
    }
    membership
}

fn set(
    membership: &mut Membership,
    id: u64,
    rules: &[FlowRule<FlowPattern>],
) -> (u64, Option<String>) {
    let change = PatternChange::Set(rules.to_vec());
    match membership.change_patterns(SubscriptionId(id), &change, Instant::now()) {
        (Reply::RulesDone { done, refused }, _) => (done, refused.map(|it| it.message)),
        other => panic!("{other:?}"),
    }
}

fn bits(membership: &Membership, id: u64) -> u64 {
    membership.flow_members(SubscriptionId(id)).unwrap().bits
}

#[test]
fn users_and_the_hub_have_few_rules_and_equal_ones_are_one() {
    let mut membership = membership();
    let rules: Vec<_> = (1..=40).map(rule).collect();
    let (done, refused) = set(&mut membership, 1, &rules);
    assert_eq!(done, 8);
    let refused = refused.unwrap();
    assert!(refused.contains("user 7 has 8 rules"), "{refused}");
    assert_eq!(set(&mut membership, 2, &rules[..8]), (8, None));
    assert_eq!(set(&mut membership, 2, &rules[8..9]).0, 0);
    assert_eq!(set(&mut membership, 3, &rules[..32]), (32, None));
    let (done, refused) = set(&mut membership, 3, &rules);
    assert_eq!(done, 32);
    let refused = refused.unwrap();
    assert!(
        refused.contains("the readers of this hub have 32"),
        "{refused}"
    );
    // With the two of the file.
    let wildcards = membership.wildcards();
    assert_eq!(wildcards.len(), 33);
    let all = bits(&membership, 1) | bits(&membership, 2) | bits(&membership, 3);
    assert_eq!(wildcards[0].bits.members, all | bits(&membership, 4));
    // With their reader, rules go.
    for id in [1, 3] {
        membership.leave(SubscriptionId(id));
    }
    assert_eq!(membership.wildcards().len(), 9);
    assert_eq!(
        membership.wildcards()[0].bits.members,
        bits(&membership, 2) | bits(&membership, 4)
    );
}

#[test]
fn a_rule_of_a_member_is_its_groups_and_hides_the_files() {
    let mut membership = membership();
    let sample = FlowRule {
        action: FlowAction::Sample { one_in: 3 },
        ..rule(1)
    };
    assert_eq!(set(&mut membership, 4, &[sample]), (1, None));
    let first = membership.wildcards()[0];
    assert_eq!(
        (first.action, first.bits.members),
        (FlowAction::Sample { one_in: 3 }, bits(&membership, 5))
    );
    let of = |membership: &Membership, after: Option<&FlowPattern>| {
        let rules = membership.patterns_of(SubscriptionId(5), after).unwrap();
        rules.iter().map(|one| one.reader).collect::<Vec<_>>()
    };
    assert_eq!(of(&membership, None), [Some(4), None]);
    assert_eq!(of(&membership, Some(&rule(1).flow)), [None]);
    assert!(of(&membership, Some(&rule(100).flow)).is_empty());
    // Only its owner removes it.
    let remove = |membership: &mut Membership, id| {
        let change = PatternChange::Remove(vec![rule(1).flow]);
        membership.change_patterns(SubscriptionId(id), &change, Instant::now())
    };
    remove(&mut membership, 5);
    assert_eq!(of(&membership, None), [Some(4), None]);
    let (_, before) = remove(&mut membership, 4);
    assert_eq!(of(&membership, None), [None, None]);
    membership.restore_patterns(before);
    assert_eq!(of(&membership, None), [Some(4), None]);
}

#[test]
fn a_guest_is_one_user_even_if_root_asks_and_has_no_rules_in_a_divided_group() {
    let mut membership = membership();
    for (id, group, pid) in [(6, "all", 1), (7, "all", 1), (8, "all", 2), (9, "ids", 1)] {
        let (id, own) = (SubscriptionId(id), Program::everything());
        let member = Member::new(id, None, own, Delivery::Shared).of_guest(pid);
        membership.join(group, member).unwrap();
    }
    let rules: Vec<_> = (1..=40).map(rule).collect();
    let (done, refused) = set(&mut membership, 6, &rules);
    let refused = refused.unwrap();
    assert_eq!(done, 8);
    assert!(
        refused.contains("this virtual machine has 8 rules"),
        "{refused}"
    );
    // With another group of the same guest, but not with another guest.
    assert_eq!(set(&mut membership, 7, &rules[8..9]).0, 0);
    assert_eq!(set(&mut membership, 8, &rules[8..9]).0, 1);
    let check = |id| membership.check_rules_of_guest(SubscriptionId(id), &[rule(1).into()]);
    assert_eq!(
        check(9).map_err(|one| one.code),
        Err(Refusal::NotAllowed),
        "host readers and other guests would lose packets"
    );
    assert_eq!((check(6), check(4)), (Ok(()), Ok(())));
}

#[test]
fn a_rule_ends_at_its_time() {
    let mut membership = membership();
    let timed = FlowRule {
        lasts_ns: Some(1_000_000_000),
        ..rule(1)
    };
    assert_eq!(set(&mut membership, 3, &[timed, rule(2)]), (2, None));
    let end = membership.next_pattern_end().unwrap();
    assert!(!membership.end_patterns(end - Duration::from_nanos(1)));
    assert!(membership.end_patterns(end));
    assert_eq!(membership.next_pattern_end(), None);
    assert_eq!(membership.patterns.len(), 1);
}
