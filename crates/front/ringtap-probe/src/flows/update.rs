// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel counted of a flow.

use ringtap_capture::meter::FlowCounts;

use crate::outside::PacketOutside;
use crate::packet::PacketKey;

/// Counts of one direction of a flow, for a time that is short against the time-outs.
#[derive(Clone, Debug)]
pub(crate) struct FlowUpdate {
    pub(crate) key: PacketKey,
    pub(crate) counts: FlowCounts,
}

impl FlowUpdate {
    /// Further VLAN tags and tunnels around the packets.
    pub(crate) fn outside(&self) -> PacketOutside<'_> {
        PacketOutside::from_counts(&self.counts)
    }
}
