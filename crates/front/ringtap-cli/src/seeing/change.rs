// SPDX-License-Identifier: MIT OR Apache-2.0
//! What changed between two looks at the same hub.
//!
//! Invariants
//! - Readers are matched by their number, lanes by theirs, sources by their place: a hub gives
//!   none of them twice. What was not there before has no rate yet.
#![forbid(unsafe_code)]

use ringtap_ipc::protocol::{GroupStatus, HubStatus, LaneStatus, ReaderStatus, SourceStatus};

use crate::report::as_f64;

/// Two looks at one hub; `before` may be missing.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    before: Option<&'a HubStatus>,
    pub(crate) now: &'a HubStatus,
}

impl<'a> Change<'a> {
    /// Between these two; two hubs have nothing in common, nor has a look with itself.
    pub(crate) fn between(before: Option<&'a HubStatus>, now: &'a HubStatus) -> Self {
        let same = |before: &&HubStatus| {
            before.pid == now.pid
                && before.started_ns == now.started_ns
                && before.time_ns < now.time_ns
        };
        Change {
            before: before.filter(same),
            now,
        }
    }

    /// Seconds between the looks, if there were two.
    pub(crate) fn seconds(&self) -> Option<f64> {
        let before = self.before?;
        Some(as_f64(self.now.time_ns - before.time_ns) / 1e9)
    }

    /// When the first look was.
    pub(crate) fn before_ns(&self) -> Option<u64> {
        Some(self.before?.time_ns)
    }

    /// A source by its place, as it was.
    pub(crate) fn source(&self, at: usize) -> Option<&'a SourceStatus> {
        self.before?.sources.get(at)
    }

    /// A lane of a source by its place, as it was.
    pub(crate) fn lane(&self, source: usize, lane: u32) -> Option<&'a LaneStatus> {
        let lanes = &self.source(source)?.lanes;
        lanes.iter().find(|one| one.lane == lane)
    }

    /// A reader by its number, as it was.
    pub(crate) fn reader(&self, reader: u64) -> Option<&'a ReaderStatus> {
        let readers = &self.before?.readers;
        readers.iter().find(|one| one.reader == reader)
    }

    /// A group by its name, as it was.
    pub(crate) fn group(&self, name: &str) -> Option<&'a GroupStatus> {
        let groups = &self.before?.groups;
        groups.iter().find(|one| one.name == name)
    }

    /// Losses of departed readers, as they were.
    pub(crate) fn departed(&self) -> Option<u64> {
        Some(self.before?.departed_overrun)
    }

    /// By how much a counter grew in a second; `None` where it was not there before.
    pub(crate) fn per_second(&self, before: Option<u64>, now: u64) -> Option<f64> {
        Some(as_f64(now.saturating_sub(before?)) / self.seconds()?)
    }
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
                delivered: taken,
                ..ReaderStatus::default()
            }],
            ..HubStatus::default()
        }
    }

    #[test]
    fn a_rate_is_growth_over_the_time_between_the_looks() {
        let (before, now) = (hub(1, 10, 100), hub(1, 14, 500));
        let change = Change::between(Some(&before), &now);
        let then = change.reader(7).map(|reader| reader.delivered);
        assert_eq!(change.per_second(then, 500), Some(100.0));
        assert_eq!(change.per_second(None, 500), None);
    }

    #[test]
    fn another_hub_or_no_time_between_gives_no_rate() {
        let (before, now) = (hub(1, 10, 100), hub(2, 14, 500));
        assert!(Change::between(Some(&before), &now).reader(7).is_none());
        assert!(Change::between(Some(&now), &now).seconds().is_none());
        assert!(Change::between(None, &now).seconds().is_none());
    }
}
