// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latency from capture, or from sending, to the reader.

use hdrhistogram::Histogram;

/// Longer times count as this, one minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// Distribution of packet latencies.
pub(super) struct Latency {
    since: &'static str,
    times_ns: Histogram<u64>,
}

impl Latency {
    /// Measures from the packet's time stamp.
    pub(super) fn since_capture() -> anyhow::Result<Self> {
        Latency::since("latency_ns")
    }

    /// Measures from the time that the sender wrote into the packet; both must use the same clock.
    pub(super) fn since_sending() -> anyhow::Result<Self> {
        Latency::since("since_sent_ns")
    }

    fn since(since: &'static str) -> anyhow::Result<Self> {
        let times_ns = Histogram::new_with_max(LONGEST_NS, 3)?;
        Ok(Latency { since, times_ns })
    }

    /// Records a packet that was captured or sent at `time_ns` and is read at `now_ns`.
    pub(super) fn packet(&mut self, time_ns: u64, now_ns: u64) {
        self.times_ns
            .saturating_record(now_ns.saturating_sub(time_ns));
    }

    pub(super) fn summary(&self) -> String {
        format!(
            "{} median {} p99 {} max {}",
            self.since,
            self.times_ns.value_at_quantile(0.5),
            self.times_ns.value_at_quantile(0.99),
            self.times_ns.max()
        )
    }
}
