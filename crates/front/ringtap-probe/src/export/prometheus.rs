// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as metrics for Prometheus: totals of flows, and the latest values of each analysis.
//!
//! Invariant: at most [`MAX_SERIES`] values are kept; what exceeds them is counted.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::{ExportError, Exporter};
use crate::analysis::as_value;
use crate::ledger::ProbeLedger;
use crate::record::{FlowRecord, Measurement, Record};

/// Most values of analyses that are kept.
const MAX_SERIES: usize = 10_000;

/// Keeps totals and the latest values for the metrics server.
pub struct PrometheusExporter(ProbeMetrics);

/// The metrics of a probe; clones share them.
#[derive(Clone, Debug, Default)]
pub struct ProbeMetrics(Arc<Mutex<ProbeTotals>>);

#[derive(Clone, Debug, Default)]
struct ProbeTotals {
    /// Flows by the reason of their end.
    flows: BTreeMap<&'static str, u64>,
    /// Packets and bytes from and to originators.
    packets: [u64; 2],
    bytes: [u64; 2],
    /// Values of the latest interval by the name of the analysis.
    latest: HashMap<String, LatestValues>,
    left_out: u64,
    /// DNS questions by the response code; `none` without an answer.
    dns: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default)]
struct LatestValues {
    to_ns: u64,
    values: Vec<(String, String, &'static str, f64)>,
}

impl PrometheusExporter {
    /// An exporter to these metrics.
    pub fn new(metrics: ProbeMetrics) -> Self {
        PrometheusExporter(metrics)
    }
}

impl Exporter for PrometheusExporter {
    fn name(&self) -> String {
        "prometheus".into()
    }

    fn write(&mut self, records: &[Record]) -> Result<(), ExportError> {
        let mut totals = self.0.totals();
        for record in records {
            match record {
                Record::Flow(flow) => totals.add(flow),
                Record::Dns(dns) => {
                    let response = dns.response.as_deref().unwrap_or("none");
                    *totals.dns.entry(response.to_owned()).or_default() += 1;
                }
                Record::Measurement(measurement) => totals.keep(measurement),
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        Ok(())
    }
}

impl ProbeMetrics {
    fn totals(&self) -> MutexGuard<'_, ProbeTotals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All metrics, with those of the ledger, in OpenMetrics' text format.
    ///
    /// # Errors
    ///
    /// A name cannot be written.
    pub fn exposition(&self, ledger: &ProbeLedger) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.totals().clone()));
        registry.register_collector(Box::new(LedgerMetrics(ledger.clone())));
        let mut out = String::new();
        text::encode(&mut out, &registry)?;
        Ok(out)
    }
}

impl ProbeTotals {
    fn add(&mut self, flow: &FlowRecord) {
        *self.flows.entry(flow.end.word()).or_default() += 1;
        for (at, way) in [flow.forward, flow.backward].into_iter().enumerate() {
            self.packets[at] += way.packets;
            self.bytes[at] += way.bytes;
        }
    }

    fn keep(&mut self, measurement: &Measurement) {
        let latest = self.latest.entry(measurement.analysis.clone()).or_default();
        if latest.to_ns != measurement.to_ns {
            latest.to_ns = measurement.to_ns;
            latest.values.clear();
        }
        let kept: usize = self.latest.values().map(|latest| latest.values.len()).sum();
        let more = measurement
            .values
            .iter()
            .take(MAX_SERIES.saturating_sub(kept));
        let more = more.map(|(value_name, value)| {
            let key = measurement.key.clone().unwrap_or_default();
            (measurement.name.clone(), key, *value_name, *value)
        });
        let more: Vec<_> = more.collect();
        self.left_out += count(measurement.values.len() - more.len());
        if let Some(latest) = self.latest.get_mut(&measurement.analysis) {
            latest.values.extend(more);
        }
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl Collector for ProbeTotals {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let ways = |[forward, backward]: [u64; 2]| {
            [("forward", forward), ("backward", backward)]
                .map(|(direction, count)| (vec![("direction", direction)], count))
        };
        let ends: Vec<_> = self
            .flows
            .iter()
            .map(|(end, flows)| (vec![("end", *end)], *flows))
            .collect();
        let help = "Flow records by the reason of their end.";
        family(&mut encoder, "ringtap_probe", help, "flows", &ends)?;
        let help = "Packets of flow records, from and to the originator.";
        let packets = ways(self.packets);
        family(
            &mut encoder,
            "ringtap_probe_flow",
            help,
            "packets",
            &packets,
        )?;
        let help = "IP bytes of flow records, from and to the originator.";
        let bytes = ways(self.bytes);
        family(&mut encoder, "ringtap_probe_flow", help, "bytes", &bytes)?;
        let help = "Values of analyses that exceeded the limit of the metrics.";
        let left_out = [(vec![("reason", "limit")], self.left_out)];
        family(
            &mut encoder,
            "ringtap_probe_left_out",
            help,
            "values",
            &left_out,
        )?;
        let dns = self.dns.iter();
        let dns = dns.map(|(response, count)| (vec![("response", &**response)], *count));
        let help = "DNS questions by the response code of their answer.";
        let dns: Vec<_> = dns.collect();
        family(&mut encoder, "ringtap_probe_dns", help, "questions", &dns)?;
        let kind = ConstGauge::new(0.0).metric_type();
        let help = "Values of the latest interval of an analysis.";
        let mut metric = encoder.encode_descriptor("ringtap_probe_value", help, None, kind)?;
        for (analysis, latest) in &self.latest {
            for (name, key, value_name, value) in &latest.values {
                let labels = [
                    ("analysis", analysis.as_str()),
                    ("name", name),
                    ("key", key),
                    ("value", value_name),
                ];
                ConstGauge::new(*value).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// The account of the probe, as metrics.
#[derive(Debug)]
struct LedgerMetrics(ProbeLedger);

impl Collector for LedgerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let ledger = &self.0;
        let packets = [
            ("not_captured", ledger.not_captured),
            ("captured", ledger.captured),
            ("analysed", ledger.analysed),
            ("not_ip", ledger.not_ip),
            ("disabled", ledger.disabled),
        ];
        let packets = packets.map(|(account, packets)| (vec![("account", account)], packets));
        let help = "Packets: captured = analysed + not_ip + disabled.";
        family(&mut encoder, "ringtap_probe", help, "packets", &packets)?;
        let packets = ledger.analyses.iter().flat_map(|one| {
            let labels = |account| vec![("analysis", one.name.as_str()), ("account", account)];
            [
                ("captured", one.captured),
                ("analysed", one.analysed),
                ("disabled", one.disabled),
                ("full", one.full),
            ]
            .map(|(account, packets)| (labels(account), packets))
        });
        let help = "Packets of each analysis.";
        let packets: Vec<_> = packets.collect();
        family(
            &mut encoder,
            "ringtap_probe_analysis",
            help,
            "packets",
            &packets,
        )?;
        let exporters = ledger.exporters.iter();
        let records: Vec<_> = exporters
            .clone()
            .flat_map(|(name, counters)| {
                [
                    ("written", counters.written),
                    ("dropped_queue_full", counters.dropped_queue_full),
                    ("dropped_failed", counters.dropped_failed),
                ]
                .map(|(outcome, records)| {
                    (
                        vec![("exporter", name.as_str()), ("outcome", outcome)],
                        records,
                    )
                })
            })
            .collect();
        let help = "Records by exporter and what became of them.";
        family(
            &mut encoder,
            "ringtap_probe_export",
            help,
            "records",
            &records,
        )?;
        let again = exporters.clone();
        let again =
            again.map(|(name, counters)| (vec![("exporter", name.as_str())], counters.reconnects));
        let help = "Times that a failed destination was back.";
        family(
            &mut encoder,
            "ringtap_probe_export",
            help,
            "reconnects",
            &again.collect::<Vec<_>>(),
        )?;
        let kind = ConstGauge::new(0.0).metric_type();
        let help = "Records that wait for an exporter.";
        let mut metric =
            encoder.encode_descriptor("ringtap_probe_export_waiting", help, None, kind)?;
        for (name, counters) in exporters {
            let waiting = ConstGauge::new(as_value(counters.waiting));
            waiting.encode(metric.encode_family(&[("exporter", name.as_str())])?)?;
        }
        Ok(())
    }
}

/// A counter with the values of each set of labels.
fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: &str,
    samples: &[(Vec<(&str, &str)>, u64)],
) -> fmt::Result {
    let unit = Unit::Other(unit.into());
    let kind = ConstCounter::new(0_u64).metric_type();
    let mut metric = encoder.encode_descriptor(name, help, Some(&unit), kind)?;
    for (labels, value) in samples {
        ConstCounter::new(*value).encode(metric.encode_family(labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(to_ns: u64, keys: &[&str]) -> Vec<Record> {
        let record = |key: &&str| {
            Record::Measurement(Box::new(Measurement {
                analysis: "top".into(),
                name: "source".into(),
                key: Some((*key).into()),
                from_ns: 0,
                to_ns,
                values: vec![("packets", 2.5)],
            }))
        };
        keys.iter().map(record).collect()
    }

    #[test]
    fn the_latest_interval_replaces_the_one_before() {
        let metrics = ProbeMetrics::default();
        let mut exporter = PrometheusExporter::new(metrics.clone());
        exporter
            .write(&values(1, &["10.0.0.1", "10.0.0.2"]))
            .expect("memory");
        exporter.write(&values(2, &["10.0.0.3"])).expect("memory");
        exporter.write(&values(2, &["a \"b\""])).expect("memory");
        let text = metrics.exposition(&ProbeLedger::default()).expect("text");
        assert!(!text.contains("10.0.0.1"), "{text}");
        for key in ["10.0.0.3", "a \\\"b\\\""] {
            let line = format!(
                "ringtap_probe_value{{analysis=\"top\",name=\"source\",key=\"{key}\",value=\"packets\"}} 2.5"
            );
            assert!(text.contains(&line), "{text}");
        }
        assert!(
            text.contains("ringtap_probe_left_out_values_total{reason=\"limit\"} 0"),
            "{text}"
        );
    }

    #[test]
    fn values_beyond_the_limit_are_counted() {
        let metrics = ProbeMetrics::default();
        let mut exporter = PrometheusExporter::new(metrics.clone());
        exporter
            .write(&values(1, &vec!["x"; MAX_SERIES + 7]))
            .expect("memory");
        let text = metrics.exposition(&ProbeLedger::default()).expect("text");
        assert!(
            text.contains("ringtap_probe_left_out_values_total{reason=\"limit\"} 7"),
            "{text}"
        );
    }
}
