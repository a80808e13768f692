// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as metrics for Prometheus: totals of flows, and the latest values of each analysis.
//!
//! Invariant: at most [`MAX_SERIES`] values are kept; what exceeds them is counted.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use ringtap_ipc::mutex::lock;
use ringtap_pool::number::to_u64;

use super::{ExportError, Exporter};
use crate::ledger::ProbeLedger;
use crate::record::{FlowRecord, Measurement, Record, as_value};

/// Most values of analyses that are kept.
const MAX_SERIES: usize = 10_000;

/// Totals and latest values for the metrics server; clones share them.
#[derive(Clone, Debug, Default)]
pub struct ProbeMetrics(Arc<Mutex<MetricsNow>>);

/// All metrics at one moment.
#[derive(Clone, Debug, Default)]
struct MetricsNow {
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
    /// Empty until the metrics are written.
    ledger: ProbeLedger,
}

#[derive(Clone, Debug, Default)]
struct LatestValues {
    to_ns: u64,
    values: Vec<(String, String, &'static str, f64)>,
}

impl Exporter for ProbeMetrics {
    fn name(&self) -> String {
        "prometheus".into()
    }

    fn write(&mut self, records: &[Record]) -> Result<(), ExportError> {
        let mut totals = self.totals();
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
    fn totals(&self) -> MutexGuard<'_, MetricsNow> {
        lock(&self.0)
    }

    /// All metrics, with those of the ledger, in OpenMetrics' text format.
    ///
    /// # Errors
    ///
    /// A name cannot be written.
    pub fn exposition(&self, ledger: &ProbeLedger) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        let all = MetricsNow {
            ledger: ledger.clone(),
            ..self.totals().clone()
        };
        registry.register_collector(Box::new(all));
        let mut out = String::new();
        text::encode(&mut out, &registry)?;
        Ok(out)
    }
}

impl MetricsNow {
    fn add(&mut self, flow: &FlowRecord) {
        *self.flows.entry(flow.end.word()).or_default() += 1;
        for (at, direction) in [flow.forward, flow.backward].into_iter().enumerate() {
            self.packets[at] += direction.packets;
            self.bytes[at] += direction.bytes;
        }
    }

    fn keep(&mut self, measurement: &Measurement) {
        let latest = self.latest.entry(measurement.analysis.clone()).or_default();
        if latest.to_ns != measurement.to_ns {
            latest.to_ns = measurement.to_ns;
            latest.values.clear();
        }
        let kept: usize = self.latest.values().map(|latest| latest.values.len()).sum();
        let room = MAX_SERIES.saturating_sub(kept);
        let more: Vec<_> = measurement
            .values
            .iter()
            .take(room)
            .map(|(value_name, value)| {
                let key = measurement.key.clone().unwrap_or_default();
                (measurement.name.clone(), key, *value_name, *value)
            })
            .collect();
        self.left_out += to_u64(measurement.values.len() - more.len());
        if let Some(latest) = self.latest.get_mut(&measurement.analysis) {
            latest.values.extend(more);
        }
    }
}

/// The values of a counter, each with its labels.
type Samples<'a> = Vec<(Vec<(&'a str, &'a str)>, u64)>;

impl Collector for MetricsNow {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let ledger = &self.ledger;
        let by = |label, (value, count)| (vec![(label, value)], count);
        let directions = |[forward, backward]: [u64; 2]| -> Samples<'_> {
            let directions = [("forward", forward), ("backward", backward)];
            directions
                .map(|direction| by("direction", direction))
                .into()
        };
        let flows = self.flows.iter();
        let dns = self.dns.iter();
        let packets = [
            ("not_captured", ledger.skipped.not_captured),
            ("captured", ledger.captured),
            ("analysed", ledger.analysed),
            ("not_ip", ledger.skipped.not_ip),
            ("disabled", ledger.skipped.disabled),
        ];
        let of_analyses = ledger.analyses.iter().flat_map(|one| {
            let accounts = [
                ("captured", one.captured),
                ("analysed", one.analysed),
                ("disabled", one.skipped.disabled),
                ("full", one.skipped.full),
            ];
            accounts.map(|(account, packets)| {
                (
                    vec![("analysis", &*one.name), ("account", account)],
                    packets,
                )
            })
        });
        let exporters = ledger.exporters.iter();
        let records = exporters.clone().flat_map(|one| {
            let outcomes = [
                ("written", one.written),
                ("dropped_queue_full", one.dropped_queue_full),
                ("dropped_failed", one.dropped_failed),
            ];
            outcomes.map(|(outcome, records)| {
                (
                    vec![("exporter", &*one.name), ("outcome", outcome)],
                    records,
                )
            })
        });
        let again = exporters.map(|one| by("exporter", (&*one.name, one.reconnects)));
        let counters: [(&str, &str, &str, Samples<'_>); 9] = [
            (
                "ringtap_probe",
                "flows",
                "Flow records by the reason of their end.",
                flows
                    .map(|(end, flows)| by("end", (*end, *flows)))
                    .collect(),
            ),
            (
                "ringtap_probe_flow",
                "packets",
                "Packets of flow records, from and to the originator.",
                directions(self.packets),
            ),
            (
                "ringtap_probe_flow",
                "bytes",
                "IP bytes of flow records, from and to the originator.",
                directions(self.bytes),
            ),
            (
                "ringtap_probe_left_out",
                "values",
                "Values of analyses that exceeded the limit of the metrics.",
                vec![by("reason", ("limit", self.left_out))],
            ),
            (
                "ringtap_probe_dns",
                "questions",
                "DNS questions by the response code of their answer.",
                dns.map(|(response, count)| by("response", (response.as_str(), *count)))
                    .collect(),
            ),
            (
                "ringtap_probe",
                "packets",
                "Packets: captured = analysed + not_ip + disabled.",
                packets.map(|account| by("account", account)).into(),
            ),
            (
                "ringtap_probe_analysis",
                "packets",
                "Packets of each analysis.",
                of_analyses.collect(),
            ),
            (
                "ringtap_probe_export",
                "records",
                "Records by exporter and what became of them.",
                records.collect(),
            ),
            (
                "ringtap_probe_export",
                "reconnects",
                "Times that a failed destination was back.",
                again.collect(),
            ),
        ];
        for (name, unit, help, samples) in &counters {
            let unit = Unit::Other((*unit).into());
            let kind = ConstCounter::new(0_u64).metric_type();
            let mut metric = encoder.encode_descriptor(name, help, Some(&unit), kind)?;
            for (labels, value) in samples {
                ConstCounter::new(*value).encode(metric.encode_family(labels)?)?;
            }
        }
        self.encode_gauges(encoder)
    }
}

impl MetricsNow {
    fn encode_gauges(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let kind = ConstGauge::new(0.0).metric_type();
        let help = "Records that wait for an exporter.";
        let mut metric =
            encoder.encode_descriptor("ringtap_probe_export_waiting", help, None, kind)?;
        for one in &self.ledger.exporters {
            let waiting = ConstGauge::new(as_value(one.waiting));
            waiting.encode(metric.encode_family(&[("exporter", &*one.name)])?)?;
        }
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
        let mut exporter = metrics.clone();
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
    fn each_metric_has_a_description() {
        let mut exporter = ProbeMetrics::default();
        exporter.write(&values(1, &["x"])).expect("memory");
        let text = exporter.exposition(&ProbeLedger::default()).expect("text");
        let names = |start| -> Vec<_> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(start));
            lines.filter_map(|line| line.split(' ').next()).collect()
        };
        assert_eq!(names("# TYPE "), names("# HELP "), "{text}");
    }

    #[test]
    fn values_beyond_the_limit_are_counted() {
        let metrics = ProbeMetrics::default();
        let mut exporter = metrics.clone();
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
