// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the counters of the sender, as text or as one JSON object a line.

use std::io;
use std::time::Duration;

use ringtap_explain::text::{bits_per_second, grouped, packets, rounded};
use ringtap_ipc::time::now_ns;
use ringtap_send::{SendCounters, SendRates};
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
    #[serde(flatten)]
    counters: SendCounters,
    /// Since the line before; in the final line, over the whole run.
    #[serde(flatten)]
    rates: SendRates,
    /// Why the latest refused packet was refused.
    refusal: Option<String>,
    #[serde(rename = "final")]
    is_final: bool,
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
        let rates = now.rates_since(&self.before);
        self.before = now;
        let text = if self.is_json {
            self.json(now, rates, false)?
        } else {
            format!(
                "{:>8.1} s {:>14} packets/s {:>12} L1 {:>16} sent {:>10} refused",
                seconds(now),
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
        let rates = now.rates_since(&SendCounters::default());
        if self.is_json {
            return self.json(now, rates, is_final);
        }
        let refused = match now.refusal() {
            None => "none refused".to_owned(),
            Some(why) => format!("{} refused ({why})", grouped(now.refused)),
        };
        Ok(format!(
            "{}: {} sent, {refused}, {} bytes in {:.3} s by {}: {} packets/s, {} L1",
            self.device,
            packets(now.sent),
            grouped(now.bytes),
            seconds(now),
            now.method,
            grouped(rounded(rates.pps)),
            bits_per_second(rates.bps),
        ))
    }

    fn json(&self, counters: SendCounters, rates: SendRates, is_final: bool) -> io::Result<String> {
        let line = SendLine {
            r#type: "send",
            time_ns: now_ns(),
            device: &self.device,
            counters,
            rates,
            refusal: counters.refusal(),
            is_final,
        };
        Ok(serde_json::to_string(&line)?)
    }
}

fn seconds(counters: SendCounters) -> f64 {
    Duration::from_nanos(counters.elapsed_ns).as_secs_f64()
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
            report.so_far(counters).unwrap()
        };
        assert!(
            summary(1).starts_with("eth0: 1 packet sent"),
            "{}",
            summary(1)
        );
        assert!(summary(2).starts_with("eth0: 2 packets sent"));
    }

    #[test]
    fn a_line_of_json_has_the_promised_names_in_their_order() {
        let report = Report::new("eth0".to_owned(), true);
        let line = report.so_far(SendCounters::default()).unwrap();
        let names = line
            .split('"')
            .filter(|word| line.contains(&format!("\"{word}\":")));
        assert_eq!(
            names.collect::<Vec<_>>().join(" "),
            "type time_ns device method elapsed_ns sent refused bytes rate_pps rate_bps refusal final"
        );
    }
}
