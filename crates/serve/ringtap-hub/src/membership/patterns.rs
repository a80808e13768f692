// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules for patterns of flows: those of readers, and those of the hub's file.
//!
//! Invariants
//! - A table has room for all: readers together have at most half of its wildcard rules, the file the other half.
//! - Equal rules of several readers are one rule of a table.
//! - A rule goes with its reader.

use std::time::{Duration, Instant};

use ringtap_filter::SelectorRule;
use ringtap_filter::flow::{FlowAction, FlowPattern, MAX_WILDCARDS, PatternRule, WildcardRule};
use ringtap_ipc::protocol::{Refusal, Refused, Reply, RuleMessage, RuleStatus};
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_ipc::time::nanoseconds;

use super::Membership;
use crate::answer::not_subscribed;
use crate::limits::FilterOwner;

/// Most different rules for patterns of all readers together, and of the hub's file.
pub(crate) const MAX_PATTERN_RULES: usize = MAX_WILDCARDS / 2;

/// A reader's rule for a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReaderPattern {
    owner: SubscriptionId,
    /// Bit of the reader, or of its group.
    target: u32,
    /// The user or guest whose rules are limited.
    user: Option<FilterOwner>,
    pattern: FlowPattern,
    action: FlowAction,
    ends_at: Option<Instant>,
}

/// What a reader does with its rules for patterns.
#[derive(Clone, Debug)]
pub(crate) enum PatternChange {
    Set(Vec<PatternRule>),
    Remove(Vec<FlowPattern>),
}

/// Number of different rules.
fn distinct<'a>(rules: impl Iterator<Item = &'a ReaderPattern>) -> usize {
    let mut seen: Vec<(FlowPattern, FlowAction)> = Vec::new();
    for rule in rules {
        let rule = (rule.pattern, rule.action);
        if !seen.contains(&rule) {
            seen.push(rule);
        }
    }
    seen.len()
}

impl Membership {
    /// Sets or removes rules of a reader. Returns the answer, and all rules as they were before.
    pub(crate) fn change_patterns(
        &mut self,
        id: SubscriptionId,
        change: &PatternChange,
        now: Instant,
    ) -> (Reply, Vec<ReaderPattern>) {
        let before = self.patterns.clone();
        let (mut done, mut refused) = (0, None);
        match change {
            PatternChange::Set(rules) => {
                for rule in rules {
                    refused = self.set_pattern(id, rule, now).err();
                    if refused.is_some() {
                        break;
                    }
                    done += 1;
                }
            }
            PatternChange::Remove(patterns) => {
                for pattern in patterns {
                    done += u64::from(self.remove_pattern(id, pattern));
                }
            }
        }
        (Reply::RulesDone { done, refused }, before)
    }

    /// Sets a reader's rule for a pattern, in place of the earlier one.
    fn set_pattern(
        &mut self,
        id: SubscriptionId,
        rule: &PatternRule,
        now: Instant,
    ) -> Result<(), Refused> {
        let bad =
            |error: &dyn std::error::Error| Refused::new(Refusal::BadRequest, error.to_string());
        rule.pattern.check().map_err(|error| bad(&error))?;
        rule.action.check().map_err(|error| bad(&error))?;
        let target = self.flow_members(id)?.target;
        let user = self.member(id).and_then(|(_, member)| member.filter_owner);
        let new = ReaderPattern {
            owner: id,
            target,
            user,
            pattern: rule.pattern.canonical(),
            action: rule.action,
            ends_at: rule
                .lasts_ns
                .and_then(|ns| now.checked_add(Duration::from_nanos(ns))),
        };
        let mut rules = self.patterns.clone();
        rules.retain(|one| one.target != target || one.pattern != new.pattern);
        rules.push(new);
        let too_much = |whose: String| {
            let message = format!("{whose}: remove some");
            Err(Refused::new(Refusal::TooMuch, message))
        };
        if distinct(rules.iter()) > MAX_PATTERN_RULES {
            return too_much(format!(
                "the readers of this hub have {MAX_PATTERN_RULES} rules for patterns, the most for all together"
            ));
        }
        let most = self.limits.pattern_rules_per_user.get();
        let of_user = distinct(rules.iter().filter(|one| one.user == user));
        if let Some(user) = user
            && of_user > usize::try_from(most).unwrap_or(usize::MAX)
        {
            return too_much(format!(
                "{user} has {most} rules for patterns (limits.pattern_rules_per_user)"
            ));
        }
        self.patterns = rules;
        Ok(())
    }

    /// Removes a reader's own rule for a pattern; `false` if it has none.
    fn remove_pattern(&mut self, id: SubscriptionId, pattern: &FlowPattern) -> bool {
        let before = self.patterns.len();
        let pattern = pattern.canonical();
        self.patterns
            .retain(|one| one.owner != id || one.pattern != pattern);
        self.patterns.len() < before
    }

    /// Removes the rules of a reader that leaves.
    pub(super) fn remove_patterns_of(&mut self, id: SubscriptionId) {
        self.patterns.retain(|one| one.owner != id);
    }

    /// The rules for patterns that withhold packets from a reader, behind that for `after`: at most
    /// `2 * MAX_PATTERN_RULES`.
    pub(crate) fn patterns_of(
        &self,
        id: SubscriptionId,
        after: Option<&FlowPattern>,
    ) -> Result<Vec<RuleStatus>, Refused> {
        let target = self.flow_members(id)?.target;
        let (group, _) = self.member(id).ok_or_else(not_subscribed)?;
        let now = Instant::now();
        let own = self.patterns.iter().filter(|one| one.target == target);
        let status = |rule: PatternRule, reader| RuleStatus {
            rule: RuleMessage::from(SelectorRule::from(rule)),
            reader,
            directions: None,
        };
        let of_own = |one: &ReaderPattern| {
            let left = one.ends_at.map(|end| end.saturating_duration_since(now));
            let rule = PatternRule {
                pattern: one.pattern,
                action: one.action,
                lasts_ns: left.map(nanoseconds),
            };
            (one.pattern, status(rule, Some(one.owner.0)))
        };
        let mut all: Vec<_> = own.map(of_own).collect();
        for rule in group
            .group
            .rules
            .iter()
            .filter_map(|rule| rule.pattern_rule())
        {
            if all.iter().all(|(pattern, _)| *pattern != rule.pattern) {
                all.push((rule.pattern, status(rule, None)));
            }
        }
        all.retain(|(pattern, _)| after.is_none_or(|after| pattern > after));
        all.sort_unstable_by_key(|(pattern, _)| *pattern);
        Ok(all.into_iter().map(|(_, status)| status).collect())
    }

    /// Removes the rules whose time is over; returns whether there were any.
    pub(crate) fn end_patterns(&mut self, now: Instant) -> bool {
        let before = self.patterns.len();
        self.patterns
            .retain(|one| one.ends_at.is_none_or(|end| now < end));
        self.patterns.len() < before
    }

    /// When the next rule ends.
    pub(crate) fn next_pattern_end(&self) -> Option<Instant> {
        self.patterns.iter().filter_map(|one| one.ends_at).min()
    }

    /// The rules for patterns, of readers and of the file. Of two for a pattern, the reader's comes first, and decides.
    pub(super) fn wildcards(&self) -> Vec<WildcardRule> {
        let mut all: Vec<WildcardRule> = Vec::new();
        let mut add = |pattern: FlowPattern, action: FlowAction, members: u64| {
            let is_equal = |one: &&mut WildcardRule| one.pattern == pattern && one.action == action;
            match all.iter_mut().find(is_equal) {
                Some(one) => one.members |= members,
                None => all.push(WildcardRule {
                    pattern,
                    members,
                    action,
                }),
            }
        };
        for one in &self.patterns {
            if let Ok(members) = self.flow_members(one.owner) {
                add(one.pattern, one.action, members.bits);
            }
        }
        for one in self.groups.iter().filter(|one| !one.members.is_empty()) {
            let with_bit = one.members.iter().filter(|member| member.bit.is_some());
            let bits = with_bit.fold(one.group_mask(), |all, it| all | it.mask());
            for rule in one
                .group
                .rules
                .iter()
                .filter_map(|rule| rule.pattern_rule())
            {
                // Where a reader has another rule for the pattern, its bits are decided before.
                add(rule.pattern, rule.action, bits);
            }
        }
        all
    }

    /// Puts back rules as they were, without those of readers that have left.
    pub(crate) fn restore_patterns(&mut self, rules: Vec<ReaderPattern>) {
        self.patterns = rules;
        let members: Vec<_> = (self.groups.iter().flat_map(|one| &one.members))
            .map(|member| member.subscription)
            .collect();
        self.patterns.retain(|one| members.contains(&one.owner));
    }
}

#[cfg(test)]
mod tests {
    use ringtap_filter::hash::HashSeed;
    use ringtap_filter::{Balance, Headers, Program};
    use ringtap_ipc::protocol::Delivery;

    use super::*;
    use crate::group::Group;
    use crate::limits::Limits;
    use crate::membership::Member;

    fn rule(port: u16) -> PatternRule {
        PatternRule {
            pattern: format!("udp port {port}").parse().unwrap(),
            action: FlowAction::Ignore,
            lasts_ns: None,
        }
    }

    /// Readers 1 and 2 of user 7 and 3 of root in one group; 4 and 5 of root in a balanced one.
    fn membership() -> Membership {
        let balanced = Group {
            division: Balance::Flow(Headers::Outer).into(),
            rules: vec![SelectorRule::from(rule(1)), SelectorRule::from(rule(100))],
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

    fn set(membership: &mut Membership, id: u64, rules: &[PatternRule]) -> (u64, Option<String>) {
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
        assert_eq!(wildcards[0].members, all | bits(&membership, 4));
        // With their reader, rules go.
        for id in [1, 3] {
            membership.leave(SubscriptionId(id));
        }
        assert_eq!(membership.wildcards().len(), 9);
        assert_eq!(
            membership.wildcards()[0].members,
            bits(&membership, 2) | bits(&membership, 4)
        );
    }

    #[test]
    fn a_rule_of_a_member_is_its_groups_and_hides_the_files() {
        let mut membership = membership();
        let sample = PatternRule {
            action: FlowAction::Sample(3),
            ..rule(1)
        };
        assert_eq!(set(&mut membership, 4, &[sample]), (1, None));
        let first = membership.wildcards()[0];
        assert_eq!(
            (first.action, first.members),
            (FlowAction::Sample(3), bits(&membership, 5))
        );
        let of = |membership: &Membership, after: Option<&FlowPattern>| {
            let rules = membership.patterns_of(SubscriptionId(5), after).unwrap();
            rules.iter().map(|one| one.reader).collect::<Vec<_>>()
        };
        assert_eq!(of(&membership, None), [Some(4), None]);
        assert_eq!(of(&membership, Some(&rule(1).pattern)), [None]);
        assert!(of(&membership, Some(&rule(100).pattern)).is_empty());
        // Only its owner removes it.
        let remove = |membership: &mut Membership, id| {
            let change = PatternChange::Remove(vec![rule(1).pattern]);
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
        let check = |id| membership.check_rules_of_guest(SubscriptionId(id));
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
        let timed = PatternRule {
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
}
