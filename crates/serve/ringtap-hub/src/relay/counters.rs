// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a relay: copied, filtered and lost packets of its subscription.

use std::ops::Range;

use ringtap_client::CopyCounts;
use ringtap_ipc::protocol::{ReaderStatus, SourceSnapshot};
use ringtap_pool::ids::LaneId;

/// Counters of all sources, and those of the reader.
#[derive(Clone)]
pub(crate) struct RelayCounters {
    /// Packets that the relay has read and copied.
    pub(super) copies: CopyCounts,
    /// The lanes of each source, counted over all sources, and whether the reader has received all its packets.
    pub(super) sources: Vec<(Range<u32>, bool)>,
    /// The numbers of the reader's status as far as they come from the private pools.
    pub(super) reader: ReaderStatus,
}

impl RelayCounters {
    /// The counters of source `at` for the reader of the private pool.
    pub(crate) fn as_private(&self, at: usize, inner: SourceSnapshot) -> SourceSnapshot {
        let Some((lanes, ended)) = self.sources.get(at) else {
            return inner;
        };
        let ids = lanes.clone().map(LaneId).zip(&inner.lanes);
        let lanes = ids.map(|(id, lane)| {
            let copied = self.copies.copied.get(id.index()).copied().unwrap_or(0);
            self.copies.tally.of_copies(id, lane, copied)
        });
        SourceSnapshot {
            lanes: lanes.collect(),
            ended: inner.ended && *ended,
            ..inner
        }
    }

    /// Adds the reader's own counters.
    pub(crate) fn fill(&self, status: &mut ReaderStatus) {
        let reader = &self.reader;
        status.counters.delivered = reader.counters.delivered;
        status.counters.filtered += reader.counters.filtered;
        status.unread += reader.unread;
        status.counters.bytes = reader.counters.bytes;
        status.lag_chunks += reader.lag_chunks.saturating_sub(1);
        status.corrupt |= reader.corrupt;
        status.impossible = reader.impossible;
        status.counters.dropped.overrun += self.copies.lost();
        status.last_loss_ns = status.last_loss_ns.max(reader.last_loss_ns);
        status.counters.offered = status.counters.accounted();
    }
}

#[cfg(test)]
mod tests {
    use ringtap_ipc::protocol::LaneSnapshot;
    use ringtap_pool::counters::Counters;

    use super::*;

    #[test]
    fn a_private_reader_lost_what_its_pools_had_no_room_for() {
        let mut copies = CopyCounts::new(2);
        copies.copied[1] = 3;
        (0..5).for_each(|sequence| copies.tally.at(LaneId(1)).delivered(sequence, 64));
        let counters = RelayCounters {
            copies,
            sources: vec![(0..1, true), (1..2, false)],
            reader: ReaderStatus {
                counters: Counters {
                    delivered: 2,
                    ..Counters::default()
                },
                unread: 1,
                lag_chunks: 3,
                last_loss_ns: 7,
                ..ReaderStatus::default()
            },
        };
        let inner = SourceSnapshot {
            lanes: vec![LaneSnapshot {
                position: 5,
                counters: Counters {
                    offered: 5,
                    delivered: 5,
                    ..Counters::default()
                },
                ..LaneSnapshot::default()
            }],
            ended: true,
            ..SourceSnapshot::default()
        };
        let outer = counters.as_private(1, inner.clone());
        assert!(!outer.ended, "the reader has not got all");
        let lane = outer.lanes[0];
        assert_eq!(
            (lane.counters.offered, lane.position, lane.missed_packets),
            (5, 3, 2)
        );
        assert!(counters.as_private(0, inner.clone()).ended);
        // The relay has yet to read 10 packets, the reader 1 of 3 copies.
        let mut status = ReaderStatus {
            counters: Counters {
                delivered: 5,
                filtered: 4,
                ..Counters::default()
            },
            unread: 10,
            ..ReaderStatus::default()
        };
        counters.fill(&mut status);
        let read = (
            status.counters.delivered,
            status.counters.filtered,
            status.unread,
        );
        assert_eq!(read, (2, 4, 11));
        let (lost, held) = (status.counters.dropped.overrun, status.lag_chunks);
        assert_eq!((lost, status.last_loss_ns, held), (2, 7, 2));
        assert_eq!(
            counters.as_private(2, inner.clone()),
            inner,
            "no such source"
        );
    }
}
