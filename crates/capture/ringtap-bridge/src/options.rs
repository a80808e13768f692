// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a bridge.

use std::time::Duration;

use ringtap_capture::tap::Passing;
use ringtap_device::Mode;
use ringtap_ipc::verdict::Verdict;

/// Options of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeOptions {
    /// The two interfaces.
    pub interfaces: [String; 2],
    /// Packets to forward, in both directions.
    pub passing: Passing,
    /// Where the kernel redirects packets.
    pub mode: Mode,
    /// Memory for packets that readers see, in bytes for each side; `None` without readers.
    pub mirror_bytes: Option<u64>,
    /// The inline reader that decides about packets that pass the filter; it needs memory for readers.
    pub inline: Option<InlineOptions>,
}

/// Options of an inline reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineOptions {
    /// Group of the inline reader.
    pub group: String,
    /// Verdict for a packet that the inline reader does not answer for.
    pub no_verdict: Verdict,
    /// Longest wait for a verdict.
    pub timeout: Duration,
}

/// Whether packets may be in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Packets may be in transit; the counters leave them out.
    Running,
    /// The bridge is stopped.
    Final,
}
