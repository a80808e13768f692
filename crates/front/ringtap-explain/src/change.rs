// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes between two snapshots of the same hub's counters.
//!
//! Invariants
//! - Readers and lanes match by number, sources by position, groups by name: a hub never reuses
//!   these. A part that is missing in the first snapshot has no rate yet.
//! - A hub may report any numbers: no sum of them overflows.

use ringtap_ipc::protocol::{
    BridgeStatus, DepartedStatus, GroupStatus, HubStatus, LaneStatus, ReaderStatus, SourceStatus,
};
use ringtap_pool::counters::{Counters, Dropped, Scope, TERMS, Term};
use ringtap_pool::source::Counts;

use crate::text::as_f64;

/// Two snapshots of one hub; the first may be missing.
#[derive(Clone, Copy)]
pub struct StatusChange<'a> {
    /// The first snapshot.
    pub before: Option<&'a HubStatus>,
    /// The second snapshot.
    pub now: &'a HubStatus,
}

impl<'a> StatusChange<'a> {
    /// The change from `before` to `now`; ignores a `before` of another hub or not earlier than `now`.
    pub fn between(before: Option<&'a HubStatus>, now: &'a HubStatus) -> Self {
        let same = |before: &&HubStatus| {
            before.pid == now.pid
                && before.started_ns == now.started_ns
                && before.time_ns < now.time_ns
        };
        StatusChange {
            before: before.filter(same),
            now,
        }
    }

    /// Seconds between the snapshots, if there are two.
    pub fn seconds(&self) -> Option<f64> {
        Some(as_f64(self.now.time_ns - self.before?.time_ns) / 1e9)
    }

    /// The source at this position in the first snapshot.
    pub fn source(&self, at: usize) -> Option<&'a SourceStatus> {
        self.before?.sources.get(at)
    }

    /// A lane of the source at this position in the first snapshot.
    pub fn lane(&self, source: usize, lane: u32) -> Option<&'a LaneStatus> {
        let lanes = &self.source(source)?.lanes;
        lanes.iter().find(|one| one.lane == lane)
    }

    /// The reader with this number in the first snapshot.
    pub fn reader(&self, reader: u64) -> Option<&'a ReaderStatus> {
        let readers = &self.before?.readers;
        readers.iter().find(|one| one.reader == reader)
    }

    /// The way of a bridge with this name in the first snapshot.
    pub fn bridge(&self, way: &str) -> Option<&'a BridgeStatus> {
        let ways = &self.before?.bridges;
        ways.iter().find(|one| one.way == way)
    }

    /// The group with this name in the first snapshot.
    pub fn group(&self, name: &str) -> Option<&'a GroupStatus> {
        let groups = &self.before?.groups;
        groups.iter().find(|one| one.name == name)
    }

    /// Losses in the first snapshot of the departed readers of this name.
    pub fn departed_reader(&self, now: &DepartedStatus) -> Option<u64> {
        let same = |one: &&DepartedStatus| {
            (one.uid, &one.group, &one.name) == (now.uid, &now.group, &now.name)
        };
        let found = self.before?.departed.iter().find(same);
        Some(found.map_or(0, |one| one.counters.dropped.overrun))
    }

    /// Growth of a counter per second; `None` if the first snapshot does not have it.
    pub fn per_second(&self, before: Option<u64>, now: u64) -> Option<f64> {
        Some(as_f64(now.saturating_sub(before?)) / self.seconds()?)
    }
}

/// The account of a source: its lanes', and what was lost before them.
pub fn account(source: &SourceStatus) -> Counters {
    source.counts().total()
}

/// The account of a source's lanes together.
pub fn lanes_of(source: &SourceStatus) -> Counters {
    let lanes = Counts {
        dropped: Dropped::default(),
        ..source.counts()
    };
    lanes.total()
}

/// The terms of an account of lanes; those that most captures cannot have only if they are not 0.
pub fn lane_terms(lanes: &Counters) -> impl Iterator<Item = (&'static str, u64)> {
    let terms = TERMS
        .iter()
        .filter(|term| term.scopes.contains(&Scope::Lane));
    let counts = terms.map(|term| (term, term.count(lanes)));
    let shown = counts.filter(|(term, count)| term.is_usual || *count > 0);
    shown.map(|(term, count)| (term.name, count))
}

/// The losses that a source can have.
pub fn source_losses() -> impl Iterator<Item = &'static Term> {
    Term::losses_of(&[Scope::Source, Scope::Lane])
}

/// A source as one lane, with its [account](account()).
pub fn whole(source: &SourceStatus) -> LaneStatus {
    let mut total = LaneStatus {
        counters: account(source),
        ..LaneStatus::default()
    };
    for lane in &source.lanes {
        total.chunks = total.chunks.saturating_add(lane.chunks);
        total.chunks_in_use = total.chunks_in_use.saturating_add(lane.chunks_in_use);
    }
    total
}

/// The sum of counters of another process, which may be any numbers.
pub fn sum(counters: impl IntoIterator<Item = u64>) -> u64 {
    counters.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(pid: i32, seconds: u64, taken: u64) -> HubStatus {
        HubStatus {
            pid,
            time_ns: seconds * 1_000_000_000,
            readers: vec![ReaderStatus {
                reader: 7,
                counters: Counters {
                    delivered: taken,
                    ..Counters::default()
                },
                ..ReaderStatus::default()
            }],
            ..HubStatus::default()
        }
    }

    #[test]
    fn a_rate_is_growth_over_the_time_between_the_snapshots() {
        let (before, now) = (hub(1, 10, 100), hub(1, 14, 500));
        let change = StatusChange::between(Some(&before), &now);
        let then = change.reader(7).map(|reader| reader.counters.delivered);
        assert_eq!(change.per_second(then, 500), Some(100.0));
        assert_eq!(change.per_second(None, 500), None);
    }

    #[test]
    fn another_hub_or_no_time_between_gives_no_rate() {
        let (before, now) = (hub(1, 10, 100), hub(2, 14, 500));
        assert!(
            StatusChange::between(Some(&before), &now)
                .reader(7)
                .is_none()
        );
        assert!(StatusChange::between(Some(&now), &now).seconds().is_none());
        assert!(StatusChange::between(None, &now).seconds().is_none());
    }
}
