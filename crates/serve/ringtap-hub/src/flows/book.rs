// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules that readers have, and in which tables they are.
//!
//! A *target* is what has at most one rule for a flow: a reader, or the members of a group that divides its traffic
//! together. Of a group, the reader that set a rule last owns it.
//!
//! Invariants
//! - Readers, users and the hub have at most as many rules as the limits allow.
//! - A target's bits leave the book before the tables forget them: nothing sets them again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use ringtap_filter::GroupName;
use ringtap_filter::flow::{FlowId, FlowRule, FlowRuleError, RuleBits};
use ringtap_ipc::protocol::{Refusal, Refused};
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_pool::source::FlowRules;

use super::FlowReader;
use super::events::EventQueue;
use crate::limits::{FilterOwner, Limits};
use crate::membership::no_group;

/// A rule of a target.
#[derive(Clone, Copy, Debug)]
pub(super) struct BookedRule {
    pub(super) rule: FlowRule,
    /// The reader that set it; `None`: the hub's file.
    pub(super) owner: Option<SubscriptionId>,
    user: Option<FilterOwner>,
    /// On the tables' clock.
    pub(super) expires_ns: Option<u64>,
    /// The tables that have it, a bit each.
    pub(super) tables: u64,
}

/// What has one rule for a flow.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// Bits that a rule withholds.
    pub(super) bits: u64,
    pub(super) rules: BTreeMap<FlowId, BookedRule>,
    /// Rules of the hub's file, which hold where no reader has one.
    pub(super) file: BTreeMap<FlowId, FlowRule>,
}

/// A reader and what waits for it.
#[derive(Debug)]
pub(super) struct KnownReader {
    pub(super) reader: FlowReader,
    pub(super) rules: u64,
    /// For the reader itself.
    pub(super) events: EventQueue,
    /// For other programs of its user, once one has asked.
    pub(super) watched: Option<EventQueue>,
}

impl KnownReader {
    /// The queues of the reader.
    pub(super) fn queues(&mut self) -> impl Iterator<Item = &mut EventQueue> {
        std::iter::once(&mut self.events).chain(&mut self.watched)
    }
}

/// All rules.
#[derive(Default)]
pub(super) struct Book {
    pub(super) limits: Limits,
    pub(super) tables: Vec<Arc<dyn FlowRules>>,
    pub(super) targets: BTreeMap<u32, Target>,
    pub(super) readers: BTreeMap<SubscriptionId, KnownReader>,
    /// The groups that get packets by rules, and their bits.
    pub(super) groups: BTreeMap<GroupName, u64>,
    of_users: HashMap<FilterOwner, u64>,
    all: u64,
    /// When rules end, the first one first.
    expiries: BTreeSet<(u64, u32, FlowId)>,
}

impl BookedRule {
    /// The rule with the time that is left.
    pub(super) fn left(&self, now_ns: u64) -> FlowRule {
        let left = |end: u64| end.saturating_sub(now_ns).max(1);
        FlowRule {
            lasts_ns: self.expires_ns.map(left),
            ..self.rule
        }
    }
}

impl Book {
    /// A book without tables and rules.
    pub(super) fn new(limits: Limits) -> Self {
        Book {
            limits,
            ..Book::default()
        }
    }

    /// Sets a rule of a target for this owner in all tables, or in none.
    pub(super) fn set(
        &mut self,
        at: u32,
        owner: Option<SubscriptionId>,
        rule: &FlowRule,
        now_ns: u64,
    ) -> Result<(), Refused> {
        if self.tables.is_empty() {
            let message = "no source of this hub has a table of flows";
            return Err(Refused::new(Refusal::Failed, message));
        }
        let user = self.admit(at, owner, rule)?;
        let bits = self.bits_of(at, rule)?;
        let target = self.targets.entry(at).or_default();
        let before = target.rules.get(&rule.flow).copied();
        let before = before.and_then(|before| Some((before, self.bits_of(at, &before.rule).ok()?)));
        let tables = &self.tables;
        for (number, table) in tables.iter().enumerate() {
            let Err(error) = table.set(rule, bits) else {
                continue;
            };
            for table in &tables[..number] {
                table.remove(&rule.flow, bits.members);
                if let Some((before, bits)) = &before {
                    // The place that it had is free.
                    let _set = table.set(&before.left(now_ns), *bits);
                }
            }
            return Err(refusal(&error));
        }
        self.drop_entry(at, &rule.flow);
        let expires_ns = rule.lasts_ns.map(|ns| now_ns.saturating_add(ns));
        let entry = BookedRule {
            rule: *rule,
            owner,
            user,
            expires_ns,
            tables: low_bits(self.tables.len()),
        };
        self.all += 1;
        if let Some(known) = owner.and_then(|id| self.readers.get_mut(&id)) {
            known.rules += 1;
        }
        if let Some(user) = user {
            *self.of_users.entry(user).or_default() += 1;
        }
        if let Some(end) = expires_ns {
            self.expiries.insert((end, at, rule.flow));
        }
        let target = self.targets.entry(at).or_default();
        target.rules.insert(rule.flow, entry);
        Ok(())
    }

    /// The bits of a target's rule: its members, and the group that gets their packets, too.
    pub(super) fn bits_of(&self, at: u32, rule: &FlowRule) -> Result<RuleBits, Refused> {
        let adds = match rule.action.group() {
            None => 0,
            Some(group) => *(self.groups.get(&group)).ok_or_else(|| no_group(&group))?,
        };
        Ok(RuleBits {
            members: self.targets.get(&at).map_or(0, |target| target.bits),
            adds,
        })
    }

    /// Checks the limits for a rule; returns the user whose rules are limited.
    fn admit(
        &self,
        at: u32,
        owner: Option<SubscriptionId>,
        rule: &FlowRule,
    ) -> Result<Option<FilterOwner>, Refused> {
        rule.check().map_err(|error| refusal(&error))?;
        let Some(known) = owner.and_then(|id| self.readers.get(&id)) else {
            return Ok(None);
        };
        let user = known.reader.user;
        let target = self.targets.get(&at);
        let before = target.and_then(|target| target.rules.get(&rule.flow));
        let is_own = before.is_some_and(|before| before.owner == owner);
        let is_users = before.is_some_and(|before| user.is_some() && before.user == user);
        let limits = &self.limits;
        let of_user = user.map_or(0, |user| self.of_users.get(&user).copied().unwrap_or(0));
        for (have, limit, key, is_new) in [
            (
                known.rules,
                limits.flow_rules_per_reader,
                "flow_rules_per_reader",
                !is_own,
            ),
            (
                of_user,
                limits.flow_rules_per_user,
                "flow_rules_per_user",
                !is_users,
            ),
            (self.all, limits.flow_rules, "flow_rules", before.is_none()),
        ] {
            if is_new && have >= u64::from(limit.get()) {
                let whose = match key {
                    "flow_rules_per_reader" => "this reader has".to_owned(),
                    "flow_rules" => "the readers of this hub have".to_owned(),
                    _ => user.map_or_else(String::new, |user| format!("{user} has")),
                };
                let message = format!("{whose} {have} flow rules (limits.{key}): remove some");
                return Err(Refused::new(Refusal::TooMuch, message));
            }
        }
        Ok(user)
    }

    /// Removes a target's rule for these bits from the tables; the entry stays until [`Book::drop_entry`].
    pub(super) fn withdraw(&self, at: u32, key: &FlowId, bits: u64) {
        let target = self.targets.get(&at);
        if let Some(entry) = target.and_then(|target| target.rules.get(key)) {
            for table in self.tables_of(entry.tables) {
                table.remove(key, bits);
            }
        }
    }

    fn tables_of(&self, tables: u64) -> impl Iterator<Item = &Arc<dyn FlowRules>> {
        let all = self.tables.iter().enumerate();
        all.filter(move |(number, _)| tables >> number & 1 == 1)
            .map(|(_, table)| table)
    }

    /// Whether the hub's file, and no reader, has the rule of a target for a flow.
    pub(super) fn is_of_file(&self, at: u32, key: &FlowId) -> bool {
        let entry = (self.targets.get(&at)).and_then(|target| target.rules.get(key));
        entry.is_some_and(|entry| entry.owner.is_none())
    }

    /// Forgets a rule that no table has any more.
    pub(super) fn drop_entry(&mut self, at: u32, key: &FlowId) {
        let target = self.targets.get_mut(&at);
        let Some(entry) = target.and_then(|target| target.rules.remove(key)) else {
            return;
        };
        self.all -= 1;
        if let Some(known) = entry.owner.and_then(|id| self.readers.get_mut(&id)) {
            known.rules = known.rules.saturating_sub(1);
        }
        if let Some(end) = entry.expires_ns {
            self.expiries.remove(&(end, at, *key));
        }
        if let Some(user) = entry.user
            && let Some(count) = self.of_users.get_mut(&user)
        {
            *count -= 1;
            if *count == 0 {
                self.of_users.remove(&user);
            }
        }
    }

    /// The next rules of a target behind that of `after`, at most `most`.
    pub(super) fn next(
        &self,
        at: u32,
        after: Option<&FlowId>,
        most: usize,
    ) -> Vec<(FlowId, BookedRule)> {
        let Some(target) = self.targets.get(&at) else {
            return Vec::new();
        };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rules = target.rules.range::<FlowId, _>((from, Bound::Unbounded));
        rules
            .take(most)
            .map(|(key, entry)| (*key, *entry))
            .collect()
    }

    /// Rules whose time is over, at most `most`.
    pub(super) fn expired(&self, now_ns: u64, most: usize) -> Vec<(u32, FlowId)> {
        let over = self.expiries.iter().take_while(|(end, ..)| *end <= now_ns);
        over.take(most).map(|(_, at, key)| (*at, *key)).collect()
    }
}

/// A set with the first `count` numbers.
pub(super) fn low_bits(count: usize) -> u64 {
    let count = u32::try_from(count).unwrap_or(u64::BITS);
    u64::MAX
        .checked_shr(u64::BITS.saturating_sub(count))
        .unwrap_or(0)
}

fn refusal(error: &FlowRuleError) -> Refused {
    let code = match error {
        FlowRuleError::NoLimit => Refusal::BadRequest,
        FlowRuleError::System { .. } => Refusal::Failed,
        _ => Refusal::TooMuch,
    };
    Refused::new(code, error.to_string())
}
