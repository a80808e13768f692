// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classification in user space: rules that change while a thread captures.
//!
//! The thread reads the rules at the start of a *batch* of packets, and ends the batch when they
//! are published. [`LaneRules::set`] waits until no batch uses the old rules.
//!
//! Invariants
//! - One set of rules classifies all packets of a batch.
//! - After `LaneRules::set` returns, no packet classified by the old rules is published.
//! - A batch never waits, and no filter loops, so `set` returns soon.
//! - A filter that loops passes every packet here; its reader runs it.
//! - A packet is counted in its flow once, also if it waits for room meanwhile.

mod flows;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use ringtap_filter::flow::Recipients;
use ringtap_filter::{
    FilterLocation, LinkType, Program, Rule, Rules,
    classifier::{Classification, Classifier, ClassifierError, Turns},
};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::time::monotonic_ns;
use ringtap_pool::source::{SourceError, WithheldCounts};

pub use flows::{LaneWithheld, SourceFlows};

/// Reason why a user-space source refuses rules; the old rules stay in force.
#[derive(Debug, thiserror::Error)]
#[error("{device}: {reason}")]
pub struct ClassifyError {
    /// The device.
    pub device: String,
    /// Why the classifier refuses the request.
    pub reason: ClassifierError,
}

/// Why a filter does not run in the source.
const LOOPS: &str =
    "the filter loops over headers (protochain): only a reader itself runs such a filter";
/// Interval at which `set` checks whether a batch has ended.
const PAUSE: Duration = Duration::from_micros(50);

/// The rules in force.
#[derive(Debug, Clone)]
struct RulesInForce {
    classifier: Arc<Classifier>,
    flows: Option<Arc<SourceFlows>>,
}

/// The rules of a lane, shared with the capturing thread.
#[derive(Debug, Default)]
pub struct LaneRules {
    /// `None` until rules are given.
    rules: Mutex<Option<RulesInForce>>,
    /// Number of changes of the rules.
    edition: AtomicU64,
    /// Odd during a batch.
    batches: AtomicU64,
    filtered: AtomicU64,
    shunted: AtomicU64,
    withheld: Arc<LaneWithheld>,
}

/// The capturing thread's side of [`LaneRules`].
#[derive(Debug)]
pub struct LaneClassifier {
    shared: Arc<LaneRules>,
    rules: Option<RulesInForce>,
    edition: u64,
    turns: Turns,
    /// Value of [`LaneRules::filtered`] after this batch.
    filtered: u64,
    /// Value of [`LaneRules::shunted`] after this batch.
    shunted: u64,
    withheld: Box<[WithheldCounts; 64]>,
    /// Members whose sums in `withheld` changed in this batch.
    withheld_from: u64,
    /// Time of this batch on the clock of the table of flows; 0 until a packet needs it.
    now_ns: u64,
    /// Whether a batch has begun.
    is_busy: bool,
}

impl LaneRules {
    /// Number of packets that no rule wanted.
    pub fn filtered(&self) -> u64 {
        self.filtered.load(Relaxed)
    }

    /// Number of packets that flow rules withheld from all members that wanted them.
    pub fn shunted(&self) -> u64 {
        self.shunted.load(Relaxed)
    }

    /// Packets withheld from each member.
    pub fn withheld(&self) -> Arc<LaneWithheld> {
        Arc::clone(&self.withheld)
    }

    /// Sets the rules, with the table of flows; returns where the filter of each rule runs.
    pub fn set(
        &self,
        rules: &Rules,
        flows: Option<Arc<SourceFlows>>,
        device: &str,
        link_type: LinkType,
    ) -> Result<Vec<FilterLocation>, SourceError> {
        let (rules, places) = bounded(rules);
        let classifier = Classifier::new(&rules, link_type).map_err(|reason| ClassifyError {
            device: device.to_owned(),
            reason,
        })?;
        let in_force = RulesInForce {
            classifier: Arc::new(classifier),
            flows,
        };
        *lock(&self.rules) = Some(in_force);
        // Pairs with `LaneClassifier::begin`: a batch sees this edition, or the loop below sees the batch.
        self.edition.fetch_add(1, SeqCst);
        let before = self.batches.load(SeqCst);
        while before % 2 == 1 && self.batches.load(SeqCst) == before {
            std::thread::sleep(PAUSE);
        }
        Ok(places)
    }
}

/// The rules, with filters that match everything in place of those that loop, and where each filter
/// runs.
fn bounded(rules: &Rules) -> (Rules, Vec<FilterLocation>) {
    let mut rules = rules.clone();
    let place = |rule: &mut Rule| {
        if !rule.filter.loops() {
            return FilterLocation::Source;
        }
        rule.filter = Program::everything();
        FilterLocation::Reader(LOOPS.to_owned())
    };
    let places = rules.each.iter_mut().map(place).collect();
    (rules, places)
}

impl LaneClassifier {
    /// A classifier with these rules.
    #[must_use]
    pub fn new(shared: Arc<LaneRules>) -> Self {
        Self {
            shared,
            rules: None,
            edition: 0,
            turns: Turns::default(),
            filtered: 0,
            shunted: 0,
            withheld: Box::new([WithheldCounts::default(); 64]),
            withheld_from: 0,
            now_ns: 0,
            is_busy: false,
        }
    }

    /// Begins a batch unless one has begun.
    #[inline]
    pub fn begin(&mut self) {
        if self.is_busy {
            return;
        }
        self.is_busy = true;
        self.shared.batches.fetch_add(1, SeqCst);
        let edition = self.shared.edition.load(SeqCst);
        if edition != self.edition {
            self.rules.clone_from(&lock(&self.shared.rules));
            self.edition = edition;
        }
    }

    /// Number that changes when the rules have changed since the last batch.
    pub fn edition(&self) -> u64 {
        self.edition
    }

    /// Whether the source has rules.
    #[inline]
    pub fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    /// Whether the source has rules by now: for threads that wait for them.
    pub fn look_for_rules(&mut self) -> bool {
        self.begin();
        let has_rules = self.has_rules();
        self.end();
        has_rules
    }

    /// Classifies a packet with captured bytes `data`; counts it and returns `None` if no rule wants it, or if flow
    /// rules withhold it from all members that do.
    #[inline]
    pub fn classify(&mut self, data: &[u8], wire_length: u32) -> Option<Classification> {
        let verdict = self.select(data, wire_length)?;
        self.withhold(verdict, data, wire_length)
    }

    /// The first part of [`LaneClassifier::classify`]: filters and balance modes. A source that waits for room calls
    /// it again after the rules have changed.
    #[inline]
    pub fn select(&mut self, data: &[u8], wire_length: u32) -> Option<Classification> {
        let Some(rules) = &self.rules else {
            return Some(Classification {
                mask: u64::MAX,
                hash: None,
            });
        };
        let verdict = (rules.classifier).classify(data, wire_length, &mut self.turns);
        if verdict.mask == 0 {
            self.filtered += 1;
            return None;
        }
        Some(verdict)
    }

    /// The second part: counts a packet in its flow, once, and withholds it as flow rules say.
    #[inline]
    pub fn withhold(
        &mut self,
        verdict: Classification,
        data: &[u8],
        wire_length: u32,
    ) -> Option<Classification> {
        let flows = self.rules.as_ref().and_then(|rules| rules.flows.as_ref());
        match flows {
            Some(flows) if flows.concerns(verdict.mask) => {
                if self.now_ns == 0 {
                    self.now_ns = monotonic_ns();
                }
                let found = flows.recipients(data, wire_length, verdict.mask, self.now_ns);
                self.count_withheld(found, verdict, wire_length)
            }
            _ => Some(verdict),
        }
    }

    fn count_withheld(
        &mut self,
        Recipients { withheld, added }: Recipients,
        verdict: Classification,
        wire_length: u32,
    ) -> Option<Classification> {
        self.withheld_from |= withheld;
        let mut members = withheld;
        while members != 0 {
            let counts = &mut self.withheld[members.trailing_zeros() as usize];
            counts.packets += 1;
            counts.bytes += u64::from(wire_length);
            members &= members - 1;
        }
        let mask = verdict.mask & !withheld | added;
        if mask == 0 {
            self.shunted += 1;
            return None;
        }
        Some(Classification { mask, ..verdict })
    }

    /// Current number of packets that no rule wanted.
    pub fn filtered(&self) -> u64 {
        self.filtered
    }

    /// Current number of packets that flow rules withheld from all members that wanted them.
    pub fn shunted(&self) -> u64 {
        self.shunted
    }

    /// Ends a batch; all of its packets are published.
    #[inline]
    pub fn end(&mut self) {
        if self.is_busy {
            self.is_busy = false;
            self.now_ns = 0;
            if self.withheld_from != 0 {
                let changed = std::mem::take(&mut self.withheld_from);
                self.shared.withheld.store(changed, &self.withheld);
                self.shared.shunted.store(self.shunted, Relaxed);
            }
            self.shared.filtered.store(self.filtered, Relaxed);
            self.shared.batches.fetch_add(1, SeqCst);
        }
    }
}

impl Drop for LaneClassifier {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
