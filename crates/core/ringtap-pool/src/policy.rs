// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens to packets for a reader past its credit.

use serde::{Deserialize, Serialize};

/// Treatment of packets for a reader past its credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The reader loses the newest packets; other readers lose nothing.
    #[default]
    DropNewest,
    /// Above half its credit the reader gets one chunk in `one_in`; past it, none.
    Sample {
        /// One chunk of this many is delivered; at least 1.
        one_in: u32,
    },
    /// Above half its credit the reader gets the first `snap_bytes` bytes of each packet; past it, none.
    Cut {
        /// Number of bytes left of a packet.
        snap_bytes: u32,
    },
    /// The source waits. Only for sources that can wait: files and simulated ones.
    Block,
}
