// SPDX-License-Identifier: MIT OR Apache-2.0
//! The moment from which NetFlow v9 counts times.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::record::FlowRecord;

/// The moment from which NetFlow v9 counts times, in milliseconds, as RFC 3954's system start.
///
/// Times are 32-bit numbers. So the start is half of their range before the time of export, which is now, or
/// for flows of an old file the end of its first flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SystemStart {
    pub(super) start_ms: u64,
    /// Time of export in seconds since 1970.
    pub(super) export_s: u64,
}

impl SystemStart {
    const RANGE_MS: u64 = 1 << 31;

    /// The start for a message that begins with this flow.
    pub(super) fn for_flow(flow: &FlowRecord) -> Self {
        let now_ms = Self::now_ms();
        let is_recent = now_ms.saturating_sub(flow.first_ns() / 1_000_000) < Self::RANGE_MS;
        let export_ms = if is_recent {
            now_ms
        } else {
            flow.last_ns().div_ceil(1_000_000_000) * 1000
        };
        Self::at(export_ms)
    }

    /// The start for a message without flows.
    pub(super) fn now() -> Self {
        Self::at(Self::now_ms())
    }

    fn now_ms() -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap_or_default().as_secs() * 1000
    }

    fn at(export_ms: u64) -> Self {
        SystemStart {
            start_ms: export_ms.saturating_sub(Self::RANGE_MS),
            export_s: export_ms / 1000,
        }
    }

    /// Milliseconds from the start to a time in nanoseconds since 1970, at most 2^32 - 1.
    pub(super) fn uptime_ms(self, time_ns: u64) -> u64 {
        let uptime_ms = (time_ns / 1_000_000).saturating_sub(self.start_ms);
        uptime_ms.min(u32::MAX.into())
    }

    /// Whether 32 bits hold the times of a flow.
    pub(super) fn fits(self, flow: &FlowRecord) -> bool {
        let begins = flow.first_ns() / 1_000_000 >= self.start_ms;
        begins && self.uptime_ms(flow.last_ns()) < u32::MAX.into()
    }
}
