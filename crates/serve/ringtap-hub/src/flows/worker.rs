// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread of flow rules: requests, the ends of flows, and long work in slices.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use ringtap_filter::FlowSelector;
use ringtap_filter::flow::{FlowEnd, FlowId, FlowRule, FlowSums};
use ringtap_ipc::event::Event;
use ringtap_ipc::protocol::{
    FlowDirectionCounts, FlowEvent, MAX_RULES_OF_REQUEST, Refusal, Refused, Reply, Request,
    RuleStatus,
};
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_ipc::time::{monotonic_ns, now_ns};
use ringtap_pool::number::{to_u64, to_usize};
use ringtap_pool::wake::Signal as _;

use super::book::{Book, KnownReader, Target};
use super::events::EventQueue;
use super::{FlowReader, FlowWork};
use crate::answer::not_subscribed;
use crate::limits::Limits;

/// Time between two looks at the tables.
const INTERVAL: Duration = Duration::from_millis(100);
/// Longest time between two looks, and the time from a look to the next in multiples of its own: a look at a table of
/// many flows leaves most of the time to requests.
const LONGEST: Duration = Duration::from_secs(10);
const PAUSE: u32 = 20;
/// Rules that one slice of long work handles.
const SLICE: usize = 512;
/// Looks within which each flow is checked for its end, so that the cost follows the number of flows.
const ROUND: u64 = 300;
/// Fewest and most flows that one sweep checks. The emptier a table, the more of it is searched for the next flow, so
/// a sweep waits until this many are due.
const MIN_SWEPT: u64 = 64;
const MAX_SWEPT: u64 = 4096;
/// Looks after which a table of few flows is swept, too.
const MAX_WAITED: u64 = 20;
/// Rules of an answer, which so fits into a message.
const PAGE: usize = 128;

/// Long work, and the flow up to which it is done.
pub(super) struct Job {
    target: u32,
    after: Option<FlowId>,
    kind: JobKind,
}

#[derive(Clone, Copy)]
enum JobKind {
    /// Removes the rules of a reader that has left, and these bits from all others.
    Forget { id: SubscriptionId, bits: u64 },
    /// Sets rules again for more bits.
    Extend,
    /// Finds rules whose end was not reported.
    Check,
}

pub(super) struct FlowWorker {
    book: Book,
    pub(super) jobs: VecDeque<Job>,
    /// Rules of the file that are in no table, and the one up to which the last look has tried to set them.
    missing: BTreeSet<(u32, FlowId)>,
    tried: Option<(u32, FlowId)>,
    /// Lost ends of each table at the last look.
    lost_ends: Vec<u64>,
    /// Looks since the last sweep of each table.
    waited: Vec<u64>,
    free: Sender<u64>,
    event: Event,
    next_look: Instant,
}

impl FlowWorker {
    pub(super) fn new(limits: Limits, free: Sender<u64>, event: Event) -> Self {
        FlowWorker {
            book: Book::new(limits),
            jobs: VecDeque::new(),
            missing: BTreeSet::new(),
            tried: None,
            lost_ends: Vec::new(),
            waited: Vec::new(),
            free,
            event,
            next_look: Instant::now(),
        }
    }

    /// Works until the hub ends.
    pub(super) fn run(mut self, inbox: &Receiver<FlowWork>) {
        loop {
            let wait = if self.jobs.is_empty() {
                self.next_look.saturating_duration_since(Instant::now())
            } else {
                Duration::ZERO
            };
            match inbox.recv_timeout(wait) {
                Ok(work) => self.take(work),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let begun = Instant::now();
            if begun >= self.next_look {
                self.look();
                let pause = (begun.elapsed() * PAUSE).clamp(INTERVAL, LONGEST);
                self.next_look = Instant::now() + pause;
            }
            self.do_slice();
        }
    }

    pub(super) fn take(&mut self, work: FlowWork) {
        match work {
            FlowWork::Tables(tables) => {
                self.lost_ends.resize(tables.len(), 0);
                self.waited.resize(tables.len(), 0);
                self.book.tables = tables;
            }
            FlowWork::Limits(limits) => self.book.limits = limits,
            FlowWork::Groups(groups) => self.book.groups = groups,
            FlowWork::Reader(reader) => self.know(reader),
            FlowWork::Leave { id, bits } => self.leave(id, bits),
            FlowWork::Request {
                id,
                request,
                responder,
            } => {
                let answer = self.answer(id, request);
                // A reader that left needs no answer.
                responder.send(answer);
            }
        }
    }

    /// Takes up a reader, or what changed of it.
    fn know(&mut self, reader: FlowReader) {
        let (at, bits) = (reader.members.target, reader.members.bits);
        let rules = reader.file_rules.clone();
        let target = self.book.targets.entry(at).or_default();
        let grows = bits & !target.bits != 0 && !target.rules.is_empty();
        target.bits |= bits;
        let id = reader.id;
        let known = self.book.readers.remove(&id);
        let known = match known {
            Some(known) => KnownReader { reader, ..known },
            None => KnownReader {
                reader,
                rules: 0,
                events: EventQueue::default(),
                watched: None,
            },
        };
        self.book.readers.insert(id, known);
        if grows {
            self.begin(at, JobKind::Extend);
        }
        self.apply_file(at, &rules);
    }

    /// Puts the rules of the hub's file in the place of those that it had for a target.
    fn apply_file(&mut self, at: u32, rules: &[FlowRule]) {
        let rules: BTreeMap<_, _> = rules.iter().map(|rule| (rule.flow, *rule)).collect();
        let target = self.book.targets.entry(at).or_default();
        let bits = target.bits;
        let before = std::mem::replace(&mut target.file, rules.clone());
        for key in before.keys().filter(|key| !rules.contains_key(key)) {
            self.missing.remove(&(at, *key));
            if self.book.is_of_file(at, key) {
                self.book.withdraw(at, key, bits);
                self.book.drop_entry(at, key);
            }
        }
        for (key, rule) in &rules {
            if before.get(key) == Some(rule) {
                continue;
            }
            if let Err(refused) = self.book.set(at, None, rule, monotonic_ns()) {
                tracing::warn!("[[rule]] {key}: {refused}");
                self.missing.insert((at, *key));
            }
        }
    }

    fn leave(&mut self, id: SubscriptionId, bits: u64) {
        let Some(known) = self.book.readers.remove(&id) else {
            return self.release(bits);
        };
        let at = known.reader.members.target;
        if let Some(target) = self.book.targets.get_mut(&at) {
            target.bits &= !bits;
            if target.bits == 0 {
                // A reader that comes before they are forgotten has them anew.
                target.file.clear();
            }
        }
        self.begin(at, JobKind::Forget { id, bits });
    }

    fn release(&self, bits: u64) {
        // The hub is ending if nothing receives it.
        let _ending = self.free.send(bits);
        self.event.signal();
    }

    /// Begins long work; a check waits already if one has not begun.
    fn begin(&mut self, target: u32, kind: JobKind) {
        let is_check = |kind| matches!(kind, JobKind::Check);
        let waits = |job: &Job| job.target == target && is_check(job.kind) && job.after.is_none();
        if is_check(kind) && self.jobs.iter().any(waits) {
            return;
        }
        self.jobs.push_back(Job {
            target,
            after: None,
            kind,
        });
    }

    /// Does a part of the first job, which then waits behind the others.
    pub(super) fn do_slice(&mut self) {
        let Some(mut job) = self.jobs.pop_front() else {
            return;
        };
        let (at, now) = (job.target, monotonic_ns());
        let rules = self.book.next(at, job.after.as_ref(), SLICE);
        let has_more = rules.len() == SLICE;
        job.after = rules.last().map(|(key, _)| *key);
        let bits = self.book.targets.get(&at).map_or(0, |target| target.bits);
        for (key, entry) in rules {
            match job.kind {
                JobKind::Forget { id, bits: freed } if entry.owner == Some(id) || bits == 0 => {
                    self.book.withdraw(at, &key, bits | freed);
                    self.drop_entry(at, &key);
                }
                JobKind::Forget { bits: freed, .. } => self.book.withdraw(at, &key, freed),
                JobKind::Extend => {
                    let Ok(bits) = self.book.bits_of(at, &entry.rule) else {
                        continue;
                    };
                    for table in &self.book.tables {
                        // Refused: the rule holds for the members that had it before.
                        let _full = table.set(&entry.left(now), bits);
                    }
                }
                JobKind::Check => {
                    let is_there = self
                        .book
                        .tables
                        .iter()
                        .any(|table| table.get(&key).is_some());
                    if !is_there {
                        self.ended(at, &key);
                    }
                }
            }
        }
        if matches!(job.kind, JobKind::Forget { .. }) {
            self.drain();
        }
        if has_more {
            self.jobs.push_back(job);
        } else if let JobKind::Forget { bits: freed, .. } = job.kind {
            if bits == 0 {
                self.book.targets.remove(&at);
            }
            self.release(freed);
        }
    }

    /// A look at the tables, from time to time.
    pub(super) fn look(&mut self) {
        let over = self.book.expired(monotonic_ns(), SLICE);
        for (at, key) in &over {
            let bits = self.book.targets.get(at).map_or(0, |target| target.bits);
            self.book.withdraw(*at, key, bits);
        }
        for (table, waited) in self.book.tables.iter().zip(&mut self.waited) {
            *waited += 1;
            let flows = table.totals().flows;
            let due = flows * *waited / ROUND;
            if due >= MIN_SWEPT || (flows > 0 && *waited >= MAX_WAITED) {
                table.sweep(to_usize(due.clamp(MIN_SWEPT, MAX_SWEPT)));
                *waited = 0;
            }
        }
        self.drain();
        for (at, key) in over {
            self.drop_entry(at, &key);
        }
        let from = self.tried.map_or(Bound::Unbounded, Bound::Excluded);
        let missing = self.missing.range((from, Bound::Unbounded));
        let missing: Vec<_> = missing.take(SLICE).copied().collect();
        // The next look goes on: rules for which there is no room do not keep others out.
        self.tried = missing.last().copied();
        for (at, key) in missing {
            self.set_again(at, &key);
        }
    }

    /// Takes the ends of flows from the tables and tells readers.
    fn drain(&mut self) {
        let offset_ns = now_ns().wrapping_sub(monotonic_ns()).cast_signed();
        for number in 0..self.book.tables.len() {
            let table = self.book.tables[number].clone();
            for (why, sums) in table.take_ends() {
                self.tell(number, why, &sums, offset_ns);
            }
            let lost = table.totals().lost_ends;
            let more = lost.saturating_sub(self.lost_ends[number]);
            self.lost_ends[number] = lost;
            if more > 0 {
                for known in self.book.readers.values_mut() {
                    if known.rules > 0 || known.reader.sees_all {
                        known.queues().for_each(|queue| queue.lose(more));
                    }
                }
                let targets: Vec<_> = self.book.targets.keys().copied().collect();
                targets
                    .into_iter()
                    .for_each(|at| self.begin(at, JobKind::Check));
            }
        }
    }

    /// Tells the readers of a flow that it ended in a table, and forgets their rules.
    fn tell(&mut self, number: usize, why: FlowEnd, sums: &FlowSums, offset_ns: i64) {
        let key = sums.key;
        let has_rule =
            |(at, target): (&u32, &Target)| Some((*at, target.bits, target.rules.get(&key)?.owner));
        let found: Vec<_> = self.book.targets.iter().filter_map(has_rule).collect();
        for known in self.book.readers.values_mut() {
            let (id, at) = (known.reader.id, known.reader.members.target);
            let is_owner = found
                .iter()
                .any(|(of, _, owner)| *of == at && owner.is_none_or(|owner| owner == id));
            if !is_owner && !known.reader.sees_all {
                continue;
            }
            let counts = sums
                .directions
                .map(|one| FlowDirectionCounts::from_direction(&one, offset_ns));
            let event = FlowEvent {
                flow: key,
                why: why.into(),
                directions: known.reader.sees_counts.then_some(counts),
            };
            known.queues().for_each(|queue| queue.push(event));
        }
        for (at, bits, _) in found {
            // Set after the flow ended, or the flow is there again for a cut-off: the rule ends all the same.
            self.book.tables[number].remove(&key, bits);
            let target = self.book.targets.get_mut(&at);
            let Some(entry) = target.and_then(|target| target.rules.get_mut(&key)) else {
                continue;
            };
            entry.tables &= !(1 << number);
            if entry.tables == 0 {
                self.ended(at, &key);
            }
        }
    }

    /// A rule is in no table any more: forgets it, or sets it again if it is the file's.
    fn ended(&mut self, at: u32, key: &FlowId) {
        let target = self.book.targets.get_mut(&at);
        match target.and_then(|target| target.rules.get_mut(key)) {
            Some(entry) if entry.owner.is_none() => {
                entry.tables = 0;
                self.missing.insert((at, *key));
            }
            _ => self.drop_entry(at, key),
        }
    }

    /// Forgets a rule that no table has any more. The file's rule for the flow, if there is one, holds again.
    fn drop_entry(&mut self, at: u32, key: &FlowId) {
        let is_of_file = self.book.is_of_file(at, key);
        self.book.drop_entry(at, key);
        let target = self.book.targets.get(&at);
        let is_wanted = !is_of_file && target.is_some_and(|target| target.file.contains_key(key));
        if is_wanted {
            self.missing.insert((at, *key));
        } else {
            self.missing.remove(&(at, *key));
        }
    }

    fn set_again(&mut self, at: u32, key: &FlowId) {
        let target = self.book.targets.get(&at);
        let rule = target.and_then(|target| target.file.get(key)).copied();
        if rule.is_none_or(|rule| self.book.set(at, None, &rule, monotonic_ns()).is_ok()) {
            self.missing.remove(&(at, *key));
        }
    }

    fn answer(&mut self, id: SubscriptionId, request: Request) -> Result<Reply, Refused> {
        let known = self.book.readers.get(&id).ok_or_else(not_subscribed)?;
        let at = known.reader.members.target;
        match request {
            Request::SetRules { rules, .. } if rules.len() <= MAX_RULES_OF_REQUEST => {
                let rules = rules.into_iter().filter_map(|rule| rule.for_flow());
                Ok(self.set(at, id, rules))
            }
            Request::RemoveRules { flows, .. } if flows.len() <= MAX_RULES_OF_REQUEST => {
                let flows: Vec<_> = flows.iter().filter_map(flow_of).collect();
                Ok(self.remove(at, id, &flows))
            }
            Request::Rules { after, .. } => {
                let after = after.as_ref().and_then(flow_of);
                Ok(self.page(at, id, after.as_ref()))
            }
            Request::FlowEvents { reader } => {
                let queue = match reader {
                    None => Some(&known.events),
                    Some(_) => known.watched.as_ref(),
                };
                let has_rules = |target: &Target| !target.rules.is_empty();
                let may_come =
                    known.reader.sees_all || self.book.targets.get(&at).is_some_and(has_rules);
                // Programs ask often: only for a reader that can have events, and has none, the tables are asked.
                if may_come && queue.is_none_or(EventQueue::is_empty) {
                    self.drain();
                }
                let known = self.book.readers.get_mut(&id).ok_or_else(not_subscribed)?;
                Ok(match reader {
                    None => known.events.take(),
                    Some(_) => known.watched.get_or_insert_default().take(),
                })
            }
            _ => {
                let message =
                    format!("a request has at most {MAX_RULES_OF_REQUEST} rules or flows");
                Err(Refused::new(Refusal::BadRequest, message))
            }
        }
    }

    fn set(&mut self, at: u32, id: SubscriptionId, rules: impl Iterator<Item = FlowRule>) -> Reply {
        let now = monotonic_ns();
        let mut done = 0;
        for rule in rules {
            if let Err(refused) = self.book.set(at, Some(id), &rule, now) {
                return Reply::RulesDone {
                    done,
                    refused: Some(refused),
                };
            }
            self.missing.remove(&(at, rule.flow));
            done += 1;
        }
        Reply::RulesDone {
            done,
            refused: None,
        }
    }

    fn remove(&mut self, at: u32, id: SubscriptionId, flows: &[FlowId]) -> Reply {
        let Some(target) = self.book.targets.get(&at) else {
            return Reply::RulesDone {
                done: 0,
                refused: None,
            };
        };
        let is_own = |key: &&FlowId| {
            let entry = target.rules.get(key);
            entry.is_some_and(|entry| entry.owner == Some(id))
        };
        let own: BTreeSet<_> = flows.iter().filter(is_own).copied().collect();
        let bits = target.bits;
        own.iter().for_each(|key| self.book.withdraw(at, key, bits));
        // Before the rules are forgotten: it tells their owner the counts of the flows.
        self.drain();
        own.iter().for_each(|key| self.drop_entry(at, key));
        Reply::RulesDone {
            done: to_u64(own.len()),
            refused: None,
        }
    }

    fn page(&self, at: u32, id: SubscriptionId, after: Option<&FlowId>) -> Reply {
        let sees = self
            .book
            .readers
            .get(&id)
            .is_some_and(|known| known.reader.sees_counts);
        let (now, offset_ns) = (monotonic_ns(), now_ns().wrapping_sub(monotonic_ns()));
        let rules = self.book.next(at, after, PAGE);
        let more = rules.len() == PAGE;
        let rules = rules.into_iter().map(|(key, entry)| {
            let found = self.book.tables.iter().filter_map(|table| table.get(&key));
            let counts = found.map(|sums| {
                sums.directions
                    .map(|one| FlowDirectionCounts::from_direction(&one, offset_ns.cast_signed()))
            });
            RuleStatus {
                rule: entry.left(now).into(),
                reader: entry.owner.map(|id| id.0),
                directions: counts.reduce(sum).filter(|_| sees),
            }
        });
        Reply::Rules {
            rules: rules.collect(),
            more,
        }
    }
}

/// The flow of a rule that is for no pattern.
fn flow_of(selector: &FlowSelector) -> Option<FlowId> {
    match selector {
        FlowSelector::Flow(flow) => Some(*flow),
        FlowSelector::Pattern(_) => None,
    }
}

/// The counts of a flow in two tables together.
fn sum(one: [FlowDirectionCounts; 2], other: [FlowDirectionCounts; 2]) -> [FlowDirectionCounts; 2] {
    let [a, b] = one;
    let [c, d] = other;
    [(a, c), (b, d)].map(|(one, other)| FlowDirectionCounts {
        packets: one.packets + other.packets,
        bytes: one.bytes + other.bytes,
        tcp_flags: one.tcp_flags | other.tcp_flags,
        first_ns: match (one.first_ns, other.first_ns) {
            (0, first) | (first, 0) => first,
            (one, other) => one.min(other),
        },
        last_ns: one.last_ns.max(other.last_ns),
    })
}
