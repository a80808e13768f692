// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds losses and faults of a hub by two statuses. Reads no clock and no files.
//!
//! Invariants
//! - Every loss counter that is not 0 has a finding.
//! - A share is the part of the packets meant for a place, not of all packets.

use std::cmp::Reverse;

use ringtap_ipc::protocol::{
    BridgeStatus, GroupStatus, HubStatus, ReaderStatus, SourceState, SourceStatus,
};

use ringtap_pool::counters::{Counters, Scope, Term};

use crate::change::{StatusChange, account, lanes_of, sum};
use crate::finding::{Finding, Loss};

/// Finds losses and faults of a hub, the worst first. Without an earlier status there are no present rates.
///
/// `is_stopped` tells whether the process with this id is stopped, if it runs on this machine.
pub fn explain(
    before: Option<&HubStatus>,
    now: &HubStatus,
    is_stopped: &dyn Fn(i32) -> bool,
) -> Vec<Finding> {
    let case = Case {
        change: StatusChange::between(before, now),
        is_stopped,
    };
    let sources = now.sources.iter().enumerate();
    let mut findings: Vec<_> = sources.flat_map(|(at, one)| case.source(at, one)).collect();
    findings.extend(now.readers.iter().flat_map(|reader| case.reader(reader)));
    findings.extend(now.bridges.iter().flat_map(|bridge| case.bridge(bridge)));
    findings.extend(case.departed());
    findings.extend(now.awaits.iter().map(|reason| Finding::Waiting {
        reason: reason.clone(),
    }));
    findings.extend(now.groups.iter().filter_map(|group| case.group(group)));
    findings.sort_by_key(|one| (!one.is_bad(), Reverse(one.lost_packets())));
    findings
}

/// Packets that were meant for a reader: if it runs its filter itself, those of other filters, too.
fn meant(reader: &Counters, is_filtered_by_reader: bool) -> u64 {
    let filtered = if is_filtered_by_reader {
        reader.filtered
    } else {
        0
    };
    sum([reader.delivered, filtered, reader.dropped.overrun])
}

struct Case<'a> {
    change: StatusChange<'a>,
    is_stopped: &'a dyn Fn(i32) -> bool,
}

impl Case<'_> {
    fn source(&self, at: usize, status: &SourceStatus) -> Vec<Finding> {
        let before = self.change.source(at);
        let source = Box::new(status.clone());
        let offered = lanes_of(status).offered;
        let started = self.change.now.started_ns;
        let losses = Term::losses_of(&[Scope::Source, Scope::Lane]).filter_map(|term| {
            let count = |source: &SourceStatus| term.count(&account(source));
            let lost = count(status);
            // Lanes count what they lose as offered; what is lost before them never reached one.
            let of = if term.scopes.contains(&Scope::Lane) {
                offered.max(lost)
            } else {
                offered.saturating_add(lost)
            };
            let loss = self.loss((before.map(count), lost), of, started)?;
            Some(Finding::Lost {
                source: source.clone(),
                term,
                furthest_behind: self.furthest_behind(),
                loss,
            })
        });
        let mut findings: Vec<_> = losses.collect();
        if let Some(reason) = status.failure.clone() {
            let source = source.clone();
            findings.push(Finding::Failed { source, reason });
        } else if status.state == SourceState::Ended {
            let source = source.clone();
            findings.push(Finding::Ended { source });
        }
        if status.detached_count > 0 {
            let source = source.clone();
            findings.push(Finding::Detached { source });
        }
        if !status.balanced {
            findings.push(Finding::Unbalanced { source });
        }
        findings
    }

    fn furthest_behind(&self) -> Option<(Box<ReaderStatus>, bool)> {
        let readers = self.change.now.readers.iter();
        let last = readers.max_by_key(|reader| reader.lag_chunks);
        // Guaranteed shares keep readers from holding every chunk.
        let can_fill = |last: &&ReaderStatus| last.lag_chunks > 0 && last.guaranteed_chunks == 0;
        let last = last.filter(can_fill)?;
        Some((Box::new(last.clone()), (self.is_stopped)(last.pid)))
    }

    fn bridge(&self, bridge: &BridgeStatus) -> Vec<Finding> {
        let before = self.change.bridge(&bridge.way);
        let started = self.change.now.started_ns;
        let losses = Term::losses_of(&[Scope::Bridge]).filter_map(|term| {
            let counter = |bridge: &BridgeStatus| term.count(&bridge.counters);
            let counters = (before.map(counter), counter(bridge));
            let loss = self.loss(counters, bridge.counters.offered, started)?;
            let reason = term.reason()?;
            let bridge = Box::new(bridge.clone());
            Some(Finding::Bridge {
                bridge,
                reason,
                loss,
            })
        });
        losses.collect()
    }

    fn reader(&self, status: &ReaderStatus) -> Vec<Finding> {
        let mut findings: Vec<_> = self.slow(status).into_iter().collect();
        let reader = || Box::new(status.clone());
        if status.corrupt {
            findings.push(Finding::Corrupt { reader: reader() });
        }
        if status.impossible {
            findings.push(Finding::Impossible { reader: reader() });
        }
        if let Some(reason) = status.not_in_source.clone() {
            let reader = reader();
            findings.push(Finding::NotInSource { reader, reason });
        }
        if status.counters.shunted > 0 {
            let before = self.change.reader(status.reader);
            let before = before.map(|before| before.counters.shunted);
            findings.push(Finding::Shunted {
                reader: reader(),
                per_second: self.change.per_second(before, status.counters.shunted),
            });
        }
        findings
    }

    fn slow(&self, reader: &ReaderStatus) -> Option<Finding> {
        let before = self.change.reader(reader.reader);
        let counters = (
            before.map(|before| before.counters.dropped.overrun),
            reader.counters.dropped.overrun,
        );
        let whole = meant(&reader.counters, reader.not_in_source.is_some());
        let loss = self.loss(counters, whole, reader.attached_ns)?;
        // The hub checks for losses when a client asks, so the first client's time is meaningless.
        let last = reader.last_loss_ns;
        let known = self.change.before;
        let is_known = last > 0 && known.is_some_and(|before| last < before.time_ns);
        let mut groups = self.change.now.groups.iter();
        let group = groups.find(|group| group.name == reader.group);
        let is_stopped = (self.is_stopped)(reader.pid);
        let is_hub_late =
            !is_stopped && reader.overrun_in_bursts > reader.counters.dropped.overrun / 2;
        let waits = self.change.now.sources.iter();
        let longest = waits.map(|source| source.longest_wait_ms).max();
        Some(Finding::Overrun {
            reader: Box::new(reader.clone()),
            group: group.map(|group| Box::new(group.clone())),
            is_stopped,
            hub_late_ms: is_hub_late.then_some(longest.unwrap_or(0)),
            loss: Loss {
                noticed_ns: is_known.then_some(last),
                ..loss
            },
        })
    }

    /// One finding for each name of readers that have left, and one for the names that the hub forgot.
    fn departed(&self) -> Vec<Finding> {
        let started = self.change.now.started_ns;
        let named = self.change.now.departed.iter().filter_map(|one| {
            let counters = (
                self.change.departed_reader(one),
                one.counters.dropped.overrun,
            );
            let whole = meant(&one.counters, false);
            let loss = self.loss(counters, whole, started)?;
            let readers = Some(Box::new(one.clone()));
            Some(Finding::Departed { readers, loss })
        });
        let forgotten = |hub: &HubStatus| {
            let named = hub.departed.iter().map(|one| one.counters.dropped.overrun);
            hub.departed_overrun.saturating_sub(sum(named))
        };
        let counters = (
            self.change.before.map(forgotten),
            forgotten(self.change.now),
        );
        let others = self
            .loss(counters, 0, started)
            .map(|loss| Finding::Departed {
                readers: None,
                loss,
            });
        named.chain(others).collect()
    }

    /// The chunks that members of this group took for others, if any.
    fn group(&self, group: &GroupStatus) -> Option<Finding> {
        group.offload_percent?;
        if group.buddies.offloaded_chunks == 0 {
            return None;
        }
        let before = self
            .change
            .group(&group.name)
            .map(|before| before.buddies.offloaded_chunks);
        let is_helper =
            |reader: &&ReaderStatus| reader.group == group.name && reader.helped_chunks > 0;
        let helpers = self.change.now.readers.iter().filter(is_helper);
        let mut helpers: Vec<_> = helpers.cloned().collect();
        helpers.sort_by_key(|reader| (Reverse(reader.helped_chunks), reader.reader));
        Some(Finding::Offloaded {
            group: Box::new(group.clone()),
            chunks_per_second: self
                .change
                .per_second(before, group.buddies.offloaded_chunks),
            helpers,
        })
    }

    /// The loss, if packets were lost: its counter in the first status and now.
    fn loss(&self, (before, packets): (Option<u64>, u64), of: u64, since_ns: u64) -> Option<Loss> {
        (packets > 0).then(|| Loss {
            packets,
            of,
            per_second: self.change.per_second(before, packets),
            watched_s: self.change.seconds().unwrap_or_default(),
            since_ns,
            noticed_ns: None,
            now_ns: self.change.now.time_ns,
        })
    }
}
