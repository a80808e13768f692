// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latency from capture, or from sending, to the reader.

use hdrhistogram::Histogram;
use serde_json::json;

use crate::reading::Extra;

/// Distribution of packet latencies.
pub(super) struct Latency {
    since: &'static str,
    times_ns: Histogram<u64>,
}

impl Latency {
    /// Measures from the time of this name: when the packet was captured, or when the sender stamped it by the
    /// same clock.
    pub(super) fn since(since: &'static str) -> anyhow::Result<Self> {
        // Without a longest time: packets of a file may be years old. All memory is there at once, so
        // that no packet waits for more.
        let times_ns = Histogram::new_with_max(u64::MAX, 3)?;
        Ok(Latency { since, times_ns })
    }

    /// Records a packet that was captured or sent at `time_ns` and is read at `now_ns`.
    pub(super) fn packet(&mut self, time_ns: u64, now_ns: u64) {
        self.times_ns
            .saturating_record(now_ns.saturating_sub(time_ns));
    }

    pub(super) fn result(&self) -> Extra {
        let at = |quantile| self.times_ns.value_at_quantile(quantile);
        let (median, p99, max) = (at(0.5), at(0.99), self.times_ns.max());
        let text = format!("{} median {median} p99 {p99} max {max}", self.since);
        let figures =
            json!({"since": self.since, "median_ns": median, "p99_ns": p99, "max_ns": max});
        Extra::new("latency", text, figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_of_long_ago_is_not_made_younger() {
        let mut latency = Latency::since("latency_ns").unwrap();
        let year_ns = 365 * 86_400 * 1_000_000_000_u64;
        latency.packet(0, year_ns);
        let error = latency.times_ns.max().abs_diff(year_ns);
        assert!(error < year_ns / 500, "{error}");
    }
}
