// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the counters of the sender, as text or as one JSON object a line.

use std::io;

use ringtap_explain::text::{as_f64, bits_per_second, grouped, packets, rounded};
use ringtap_ipc::time::now_ns;
use ringtap_send::{Method, SendCounters};
use serde::Serialize;

use crate::print;

/// Prints how the counters grow.
pub(super) struct Report {
    device: String,
    is_json: bool,
    before: SendCounters,
}

/// A JSON line; its names are part of the interface.
#[derive(Serialize)]
struct SendLine<'a> {
    r#type: &'static str,
    /// Since 1970.
    time_ns: u64,
    device: &'a str,
    method: &'static str,
    /// Since the first packet, as all counters here.
    elapsed_ns: u64,
    sent: u64,
    refused: u64,
    /// Without frame check sequence.
    bytes: u64,
    /// Packets sent per second: since the line before; in the final line, over the whole run.
    rate_pps: f64,
    /// As `rate_pps`, in bits at L1: with preamble, frame check sequence and gap.
    rate_bps: f64,
    /// Why the latest refused packet was refused.
    refusal: Option<String>,
    #[serde(rename = "final")]
    is_final: bool,
}

/// Rates between two moments.
struct SendRates {
    pps: f64,
    bps: f64,
}

impl Report {
    pub(super) fn new(device: String, is_json: bool) -> Self {
        Self {
            device,
            is_json,
            before: SendCounters::default(),
        }
    }

    /// One line while packets are sent.
    pub(super) fn line(&mut self, now: SendCounters) -> io::Result<()> {
        let rates = rates(now, self.before);
        self.before = now;
        let text = if self.is_json {
            self.json(now, &rates, false)?
        } else {
            format!(
                "{:>8.1} s {:>14} packets/s {:>12} L1 {:>16} sent {:>10} refused",
                seconds(now.elapsed_ns),
                grouped(rounded(rates.pps)),
                bits_per_second(rates.bps),
                grouped(now.sent),
                grouped(now.refused),
            )
        };
        print::write(text)
    }

    /// Prints the totals and rates of the whole run.
    pub(super) fn last(&self, now: SendCounters) -> io::Result<()> {
        print::write(self.totals(now, true)?)
    }

    /// The totals and rates from the start of the run until now.
    pub(super) fn so_far(&self, now: SendCounters) -> io::Result<String> {
        self.totals(now, false)
    }

    fn totals(&self, now: SendCounters, is_final: bool) -> io::Result<String> {
        let rates = rates(now, SendCounters::default());
        if self.is_json {
            self.json(now, &rates, is_final)
        } else {
            Ok(self.summary(now, &rates))
        }
    }

    fn summary(&self, now: SendCounters, rates: &SendRates) -> String {
        let refused = match now.refusal() {
            None => "none refused".to_owned(),
            Some(why) => format!("{} refused ({why})", grouped(now.refused)),
        };
        format!(
            "{}: {} sent, {refused}, {} bytes in {:.3} s by {}: {} packets/s, {} L1",
            self.device,
            packets(now.sent),
            grouped(now.bytes),
            seconds(now.elapsed_ns),
            match now.method {
                Method::Live => "live frames",
                Method::Packet => "AF_PACKET",
            },
            grouped(rounded(rates.pps)),
            bits_per_second(rates.bps),
        )
    }

    fn json(&self, now: SendCounters, rates: &SendRates, is_final: bool) -> io::Result<String> {
        let line = SendLine {
            r#type: "send",
            time_ns: now_ns(),
            device: &self.device,
            method: match now.method {
                Method::Live => "live",
                Method::Packet => "packet",
            },
            elapsed_ns: now.elapsed_ns,
            sent: now.sent,
            refused: now.refused,
            bytes: now.bytes,
            rate_pps: rates.pps,
            rate_bps: rates.bps,
            refusal: now.refusal(),
            is_final,
        };
        Ok(serde_json::to_string(&line)?)
    }
}

fn rates(now: SendCounters, before: SendCounters) -> SendRates {
    let elapsed_s = seconds(now.elapsed_ns.saturating_sub(before.elapsed_ns));
    let per_second = |amount: u64| {
        if elapsed_s > 0.0 {
            as_f64(amount) / elapsed_s
        } else {
            0.0
        }
    };
    SendRates {
        pps: per_second(now.sent.saturating_sub(before.sent)),
        bps: per_second(now.wire_bits().saturating_sub(before.wire_bits())),
    }
}

fn seconds(ns: u64) -> f64 {
    as_f64(ns) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_is_not_several() {
        let report = Report::new("eth0".to_owned(), false);
        let summary = |sent| {
            let mut counters = SendCounters::default();
            counters.sent = sent;
            report.summary(counters, &SendRates { pps: 0.0, bps: 0.0 })
        };
        assert!(
            summary(1).starts_with("eth0: 1 packet sent"),
            "{}",
            summary(1)
        );
        assert!(summary(2).starts_with("eth0: 2 packets sent"));
    }

    #[test]
    fn rates_are_those_between_two_moments() {
        let counters = |sent: u64, elapsed_ns| {
            let mut counters = SendCounters::default();
            counters.sent = sent;
            counters.bytes = sent * 60;
            counters.elapsed_ns = elapsed_ns;
            counters
        };
        let rates = rates(counters(3000, 2_000_000_000), counters(1000, 1_000_000_000));
        assert_eq!((rates.pps, rates.bps), (2000.0, 2000.0 * 672.0));
    }
}
