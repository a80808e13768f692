// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latency from capture, or from sending, to the reader.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde_json::json;

use crate::reading::Extra;

/// What is told of a distribution, the shortest times first.
const QUANTILES: [(&str, f64); 8] = [
    ("p10", 0.1),
    ("p25", 0.25),
    ("median", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p999", 0.999),
    ("max", 1.0),
];

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
        let times = QUANTILES.map(|(name, at)| (name, self.times_ns.value_at_quantile(at)));
        let mut text = self.since.to_owned();
        let mut figures = json!({"since": self.since});
        for (name, ns) in times {
            let _infallible = write!(text, " {name} {ns}");
            figures[format!("{name}_ns")] = ns.into();
        }
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

    #[test]
    fn the_distribution_is_told_from_short_to_long() {
        let mut latency = Latency::since("latency_ns").unwrap();
        (1..=1000).for_each(|number| latency.packet(0, number * 1000));
        let told: serde_json::Value = serde_json::from_str(&latency.result().json()).unwrap();
        let micros = QUANTILES.map(|(name, _)| told[format!("{name}_ns")].as_u64().unwrap() / 1000);
        assert_eq!(micros, [100, 250, 500, 750, 900, 990, 999, 1000]);
        let text = told["text"].as_str().unwrap();
        assert!(text.starts_with("latency_ns p10 100"), "{text}");
    }
}
