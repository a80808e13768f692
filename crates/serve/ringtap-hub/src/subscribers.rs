// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subscribers: the hub's side of each subscription, and its counters for its reader and for `status`.

mod attach;
mod changes;
mod departed;
mod elsewhere;
mod leaving;
mod rules;
mod shunted;
mod shunting;
mod state;

pub(crate) use changes::{Change, Changes};
pub(crate) use state::{StatusView, Subscribers};

use ringtap_filter::FilterLocation;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{
    GroupStatus, HubStatus, LaneSnapshot, LaneStatus, ReaderStatus, Snapshot, SourceSnapshot,
};
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_pool::distributor::Missing;
use ringtap_pool::number::{to_u32, to_u64, to_usize};
use ringtap_pool::source::Counts;

use crate::control::HubControl;
use crate::engine::{Figures, SourceFigures};
use crate::group::Group;
use shunting::Withheld;
use state::Subscriber;

impl HubControl {
    /// A subscriber's counters since its start.
    pub(crate) fn snapshot(&self, id: SubscriptionId, figures: &Figures) -> Option<Snapshot> {
        let subscriber = self.subscribers.all.get(&id)?;
        let missed = &figures.readers.get(&id)?.missed;
        let withheld = self.withheld_since(subscriber);
        let readers = subscriber.baselines.iter().zip(missed);
        let sources =
            readers
                .zip(&figures.sources)
                .enumerate()
                .map(|(at, ((baseline, missed), source))| {
                    let withheld = withheld.get(at).and_then(Option::as_ref);
                    let snapshot = endpoint_snapshot(baseline, missed, source, withheld);
                    match &subscriber.relay {
                        Some(relay) => relay.counters().as_private(at, snapshot),
                        None => snapshot,
                    }
                });
        Some(Snapshot {
            sources: sources.collect(),
        })
    }

    /// The counters of the hub, as far as a user may see them.
    pub(crate) fn status(&self, figures: &Figures, view: &StatusView) -> HubStatus {
        let sources = figures.sources.iter();
        let groups = self
            .membership
            .groups()
            .filter(|(group, _)| view.shows(&group.name));
        let groups = groups.map(|(group, members)| self.group_status(group, members, figures));
        let readers = self
            .subscribers
            .all
            .iter()
            .filter(|(_, subscriber)| view.shows(&subscriber.group));
        let readers = readers.filter_map(|(id, subscriber)| {
            let numbers = figures.readers.get(id)?.numbers.clone();
            Some(self.reader_status(*id, subscriber, numbers))
        });
        let (mut departed, mut departed_overrun) = self.subscribers.departed.status();
        let is_whole = *view == StatusView::Whole;
        if !is_whole {
            departed.retain(|one| view.shows(&one.group));
            let lost = departed.iter().map(|one| one.counters.dropped.overrun);
            departed_overrun = lost.fold(0, u64::saturating_add);
        }
        HubStatus {
            time_ns: figures.time_ns,
            started_ns: self.started_ns,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: Peer::this_process().pid,
            sources: sources.map(|source| source.status.clone()).collect(),
            groups: groups.collect(),
            readers: readers.collect(),
            awaits: self.awaits.clone(),
            configuration: self.configuration.clone().filter(|_| is_whole),
            bridges: self.bridges.clone(),
            departed,
            departed_overrun,
            hash_seed: is_whole.then_some(self.membership.seed.0),
            partial: !is_whole,
            longest_step_us: to_u64(figures.longest_step.as_micros()),
            readers_after: None,
        }
    }

    fn group_status(&self, group: &Group, members: usize, figures: &Figures) -> GroupStatus {
        let mut status = GroupStatus {
            name: group.name.clone(),
            division: group.division.clone(),
            delivery: group.delivery,
            filter: group.filter.text().to_owned(),
            members: to_u32(members),
            max_members: group.max_members,
            cutoff: group.cutoff,
            policy: group.policy,
            offload_percent: group.offload_percent,
            ..GroupStatus::default()
        };
        if let Some(number) = self.membership.chunk_share(&group.name) {
            let buddies = figures.sources.iter().map(|source| &source.buddies);
            for counts in buddies.filter_map(|groups| groups.get(to_usize(number))) {
                status.buddies += *counts;
            }
        }
        status
    }

    /// The status of a reader with these figures of its sources.
    fn reader_status(
        &self,
        id: SubscriptionId,
        subscriber: &Subscriber,
        numbers: ReaderStatus,
    ) -> ReaderStatus {
        let mut status = ReaderStatus {
            reader: id.0,
            name: subscriber.name.clone(),
            group: subscriber.group.clone(),
            pid: subscriber.peer.pid,
            uid: subscriber.peer.uid,
            delivery: subscriber.delivery,
            attached_ns: subscriber.attached_ns,
            not_in_source: match &subscriber.place {
                FilterLocation::Source => None,
                FilterLocation::Reader(why) => Some(why.clone()),
            },
            buckets: self.membership.buckets_of(id),
            ..numbers
        };
        if let Some(relay) = &subscriber.relay {
            relay.counters().fill(&mut status);
        }
        status
    }
}

/// A source's counters since those `before`, with what a reader missed, and what flow rules withheld from it, per lane.
fn endpoint_snapshot(
    before: &Counts,
    missed: &[Missing],
    source: &SourceFigures,
    withheld: Option<&Vec<Withheld>>,
) -> SourceSnapshot {
    let now = &source.status;
    let lane = |(at, lane): (usize, &LaneStatus)| {
        let now = lane.counters;
        let then = before.lanes.get(at).copied().unwrap_or_default();
        let missed = missed.get(at).copied().unwrap_or_default();
        let mut counters = now.since(&then);
        let shunted = std::mem::take(&mut counters.shunted);
        counters.filtered = counters.filtered.saturating_add(shunted);
        // Without a table, the source shunted for all its readers.
        let withheld = withheld.map_or(
            Withheld {
                packets: shunted,
                ..Withheld::default()
            },
            |lanes| lanes.get(at).copied().unwrap_or_default(),
        );
        LaneSnapshot {
            start: then.delivered,
            position: now.delivered,
            counters,
            missed_sequences: missed.sequences,
            missed_packets: missed.packets,
            missed_other_members: missed.other_members,
            withheld_packets: withheld.packets,
            withheld_bytes: withheld.bytes,
            withheld_other_members: withheld.other_members,
        }
    };
    SourceSnapshot {
        lanes: now.lanes.iter().enumerate().map(lane).collect(),
        dropped: now.dropped.since(before.dropped),
        ended: source.ended,
        failure: now.failure.clone(),
        is_removed: now.is_removed,
    }
}
