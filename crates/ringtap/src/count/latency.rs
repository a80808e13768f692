// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time from capture to the reader.
#![forbid(unsafe_code)]

use hdrhistogram::Histogram;

use crate::report::now_ns;

/// Longest time told apart: a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// Times from capture to the reader.
pub(super) struct Latency(Histogram<u64>);

impl Latency {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Latency(Histogram::new_with_max(LONGEST_NS, 3)?))
    }

    /// Notes a packet that was captured at `time_ns` and is read now.
    pub(super) fn packet(&mut self, time_ns: u64) {
        self.0.saturating_record(now_ns().saturating_sub(time_ns));
    }

    pub(super) fn summary(&self) -> String {
        format!(
            "latency_ns median {} p99 {} max {}",
            self.0.value_at_quantile(0.5),
            self.0.value_at_quantile(0.99),
            self.0.max()
        )
    }
}
