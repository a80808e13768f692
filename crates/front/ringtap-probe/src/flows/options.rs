// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of flow metering.

use std::time::Duration;

/// Settings of flow metering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowOptions {
    /// Most flows at one time. Beyond it, flows are evicted: closed ones first, then those with few
    /// packets, then those whose last packet is the oldest.
    pub max_flows: u32,
    /// A flow that lasts longer is reported in parts of this length.
    pub active: Duration,
    /// A flow without packets for this long has ended.
    pub idle: Duration,
    /// Meter one flow in this many, chosen by its hash; 1: all.
    pub sampling: u32,
    /// Seed of the flows' Community IDs; 0, as usual, makes them those of other programs.
    pub community_id_seed: u16,
    /// First bytes of each direction in which TLS, DNS and HTTP are looked for; 0: none.
    pub payload_bytes: u32,
    /// Most memory for payload, texts of flows and unanswered DNS questions, in bytes.
    pub payload_memory: u64,
    /// Whether nDPI names the application of each flow.
    pub ndpi: bool,
}

impl Default for FlowOptions {
    fn default() -> Self {
        FlowOptions {
            max_flows: 1_000_000,
            active: Duration::from_secs(300),
            idle: Duration::from_secs(60),
            sampling: 1,
            community_id_seed: 0,
            // A hello in one record of TLS, the longest of which have 2^14 + 256 bytes after a header.
            payload_bytes: (1 << 14) + 256 + 5,
            payload_memory: 64 << 20,
            ndpi: false,
        }
    }
}
