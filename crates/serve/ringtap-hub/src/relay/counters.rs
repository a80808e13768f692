// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a relay: copied, filtered and lost packets of its subscription.

use ringtap_ipc::protocol::{LaneSnapshot, ReaderStatus, SourceSnapshot};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RelayLaneCounters {
    /// Sequence of the source's packet after the last one that the relay has read.
    pub(super) position: u64,
    /// Packets in the private pool.
    pub(super) copied: u64,
    /// Packets that did not pass the filter.
    pub(super) filtered: u64,
    /// Packets for other members of the group.
    pub(super) other_members: u64,
    /// Packets lost before the relay, or because the private pool had no room.
    pub(super) lost: u64,
    /// Packets among `lost` for which the private pool had no room.
    pub(super) full: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct RelayEndpointCounters {
    pub(super) lanes: Vec<RelayLaneCounters>,
    /// The reader has received every packet.
    pub(super) ended: bool,
}

/// Counters of all endpoints, and those of the reader.
#[derive(Clone, Debug, Default)]
pub(super) struct RelayCounters {
    pub(super) endpoints: Vec<RelayEndpointCounters>,
    pub(super) delivered: u64,
    pub(super) filtered: u64,
    pub(super) bytes: u64,
    pub(super) held: u32,
    pub(super) corrupt: bool,
    /// When the private pool had no room for a packet the last time.
    pub(super) last_loss_ns: u64,
}

impl RelayCounters {
    pub(super) fn lost(&self) -> u64 {
        let lanes = self.endpoints.iter().flat_map(|endpoint| &endpoint.lanes);
        lanes.map(|lane| lane.full).sum()
    }

    pub(super) fn as_private(&self, at: usize, inner: SourceSnapshot) -> SourceSnapshot {
        let Some(counters) = self.endpoints.get(at) else {
            return inner;
        };
        let lane = |(lane, counters): (&LaneSnapshot, &RelayLaneCounters)| LaneSnapshot {
            start: 0,
            position: counters.copied,
            // Packets that the relay has not read yet were not offered to the reader yet.
            offered: lane.offered
                - lane
                    .position
                    .saturating_sub(counters.position)
                    .min(lane.offered),
            filtered: lane.filtered + counters.filtered,
            other_members: counters.other_members,
            pool_full: lane.pool_full,
            kernel: lane.kernel,
            missed_sequences: 0,
            missed_packets: counters.lost,
            missed_other_members: 0,
        };
        SourceSnapshot {
            lanes: inner.lanes.iter().zip(&counters.lanes).map(lane).collect(),
            ended: inner.ended && counters.ended,
            ..inner
        }
    }

    pub(super) fn fill(&self, status: &mut ReaderStatus) {
        status.delivered = self.delivered;
        let lanes = self.endpoints.iter().flat_map(|endpoint| &endpoint.lanes);
        status.filtered = self.filtered + lanes.map(|lane| lane.filtered).sum::<u64>();
        let lanes = self.endpoints.iter().flat_map(|endpoint| &endpoint.lanes);
        status.other_members = lanes.map(|lane| lane.other_members).sum();
        status.bytes = self.bytes;
        status.lag_chunks += self.held.saturating_sub(1);
        status.corrupt |= self.corrupt;
        status.overrun += self.lost();
        status.last_loss_ns = status.last_loss_ns.max(self.last_loss_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_reader_sees_the_packets_that_the_relay_has_looked_at() {
        let counters = RelayCounters {
            endpoints: vec![RelayEndpointCounters {
                lanes: vec![RelayLaneCounters {
                    position: 140,
                    copied: 20,
                    filtered: 12,
                    other_members: 5,
                    lost: 3,
                    full: 2,
                }],
                ended: false,
            }],
            ..RelayCounters::default()
        };
        let inner = SourceSnapshot {
            lanes: vec![LaneSnapshot {
                start: 100,
                position: 150,
                offered: 54,
                filtered: 1,
                pool_full: 2,
                kernel: 1,
                missed_sequences: 9,
                missed_packets: 9,
                other_members: 0,
                missed_other_members: 0,
            }],
            ended: true,
            ..SourceSnapshot::default()
        };
        let outer = counters.as_private(0, inner.clone());
        assert!(!outer.ended, "the reader has not got all");
        let lane = outer.lanes[0];
        assert_eq!((lane.start, lane.position), (0, 20));
        assert_eq!(lane.offered, 44, "ten packets are still to be looked at");
        assert_eq!((lane.filtered, lane.other_members), (13, 5));
        assert_eq!((lane.missed_sequences, lane.missed_packets), (0, 3));
        let settled = lane.position + lane.filtered + lane.other_members;
        assert_eq!(
            lane.offered,
            settled + lane.missed_packets + lane.pool_full + lane.kernel
        );
        assert_eq!(counters.lost(), 2);
        let mut status = ReaderStatus::default();
        counters.fill(&mut status);
        assert_eq!((status.filtered, status.overrun), (12, 2));
        assert_eq!(
            counters.as_private(1, inner.clone()),
            inner,
            "no such endpoint"
        );
    }
}
