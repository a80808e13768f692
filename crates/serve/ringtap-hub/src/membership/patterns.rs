// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules for patterns of flows: those of readers, and those of the hub's file.
//!
//! Invariants
//! - A table has room for all: readers together have at most half of its wildcard rules, the file the other half.
//! - Equal rules of several readers are one rule of a table.
//! - A rule goes with its reader.

use std::time::{Duration, Instant};

use ringtap_filter::flow::{
    FlowAction, FlowPattern, FlowRule, MAX_WILDCARDS, RuleBits, WildcardRule,
};
use ringtap_ipc::protocol::{Refusal, Refused, Reply, RuleStatus};
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
    Set(Vec<FlowRule<FlowPattern>>),
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
        rule: &FlowRule<FlowPattern>,
        now: Instant,
    ) -> Result<(), Refused> {
        let bad =
            |error: &dyn std::error::Error| Refused::new(Refusal::BadRequest, error.to_string());
        rule.flow.check().map_err(|error| bad(&error))?;
        rule.action.check().map_err(|error| bad(&error))?;
        let target = self.flow_members(id)?.target;
        let user = self.member(id).and_then(|(_, member)| member.filter_owner);
        let new = ReaderPattern {
            owner: id,
            target,
            user,
            pattern: rule.flow.canonical(),
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
        let status = |rule: FlowRule<FlowPattern>, reader| RuleStatus {
            rule: rule.into(),
            reader,
            directions: None,
        };
        let of_own = |one: &ReaderPattern| {
            let left = one.ends_at.map(|end| end.saturating_duration_since(now));
            let rule = FlowRule {
                flow: one.pattern,
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
            .filter_map(|rule| rule.for_pattern())
        {
            if all.iter().all(|(pattern, _)| *pattern != rule.flow) {
                all.push((rule.flow, status(rule, None)));
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
            let adds = match action.group() {
                None => 0,
                Some(group) => match self.by_rule_bit(&group) {
                    Some(bit) => bit,
                    // A reload removed the group.
                    None => return,
                },
            };
            match all.iter_mut().find(is_equal) {
                Some(one) => one.bits.members |= members,
                None => all.push(WildcardRule {
                    pattern,
                    bits: RuleBits { members, adds },
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
            for rule in one.group.rules.iter().filter_map(|rule| rule.for_pattern()) {
                // Where a reader has another rule for the pattern, its bits are decided before.
                add(rule.flow, rule.action, bits);
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
mod tests;
