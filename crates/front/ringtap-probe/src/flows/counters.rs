// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of flow metering.

use serde::Serialize;

/// Totals of flow metering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowCounters {
    /// Flows now.
    #[serde(rename = "now")]
    pub flows: u64,
    /// Records of all kinds.
    pub records: u64,
    /// Records of flows that were evicted because the table was full.
    pub evicted: u64,
    /// Packets of flows that sampling left out.
    pub not_sampled: u64,
    /// Flows and DNS questions for which `payload_memory` had no room.
    pub payload_no_room: u64,
    /// Flows and DNS messages that could not be read: segments missing or cut, too long, malformed, too much work.
    pub payload_unread: u64,
}

impl std::ops::AddAssign for FlowCounters {
    fn add_assign(&mut self, other: Self) {
        self.flows += other.flows;
        self.records += other.records;
        self.evicted += other.evicted;
        self.not_sampled += other.not_sampled;
        self.payload_no_room += other.payload_no_room;
        self.payload_unread += other.payload_unread;
    }
}
