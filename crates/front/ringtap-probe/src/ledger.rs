// SPDX-License-Identifier: MIT OR Apache-2.0
//! Account of a probe: what it captured, analysed, skipped and exported.

use ringtap::{Counters, Dropped};
use serde_json::{Value, json};

use crate::analysis::AnalysisPlace;
use crate::export::ExportCounters;
use crate::flows::FlowCounters;
use crate::library::LibraryLedger;

/// Account of a probe: `captured = analysed + not_ip + disabled`.
#[derive(Clone, Debug, Default)]
pub struct ProbeLedger {
    /// Packets that the capture skipped, because workers were behind or the pool was full.
    pub not_captured: u64,
    /// Packets that the workers received.
    pub captured: u64,
    /// Packets that all analyses saw.
    pub analysed: u64,
    /// Packets skipped because they are not IP.
    pub not_ip: u64,
    /// Packets skipped because no analysis was on.
    pub disabled: u64,
    /// Flow metering.
    pub flows: FlowCounters,
    /// Workers' parts of results that were lost because the probe was busy.
    pub parts_dropped: u64,
    /// Exporters by name.
    pub exporters: Vec<(String, ExportCounters)>,
    /// Users' own analyses.
    pub libraries: Vec<LibraryLedger>,
    /// The analyses in the kernel, if there are any.
    pub kernel: Option<KernelLedger>,
    /// Each analysis of the plan, and those that it had before.
    pub analyses: Vec<AnalysisLedger>,
}

/// Account of one analysis: `captured = analysed + not_ip + disabled + full + nested`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisLedger {
    /// Name of the analysis.
    pub name: String,
    /// Where it runs.
    pub place: AnalysisPlace,
    /// Packets that the workers received, or that the programs in the kernel saw.
    pub captured: u64,
    /// Packets that the analysis counted.
    pub analysed: u64,
    /// Packets that the capture skipped; they are not among the captured ones.
    pub not_captured: u64,
    /// Packets skipped because they are not IP.
    pub not_ip: u64,
    /// Packets skipped because the analysis was off.
    pub disabled: u64,
    /// Packets of new flows for which the kernel had no room.
    pub full: u64,
    /// Packets that met a program that had not ended.
    pub nested: u64,
}

/// Account of the analyses in the kernel: `seen = analysed + not_ip + disabled + full + nested`.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelLedger {
    /// Packets that the programs saw.
    pub seen: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Packets that all analyses counted.
    pub analysed: u64,
    /// Packets skipped because they are not IP.
    pub not_ip: u64,
    /// Packets skipped because no analysis was on.
    pub disabled: u64,
    /// Packets of new flows for which there was no room; `sizes` has counted them.
    pub full: u64,
    /// Packets that met a program that had not ended.
    pub nested: u64,
}

impl KernelLedger {
    /// The account as that of a capture.
    pub(crate) fn counters(&self) -> Counters {
        let dropped = Dropped {
            kernel: self.nested,
            pool_full: self.full,
            ..Dropped::default()
        };
        Counters {
            offered: self.seen,
            delivered: self.seen.saturating_sub(dropped.total()),
            bytes: self.bytes,
            dropped,
            ..Counters::default()
        }
    }
}

impl AnalysisLedger {
    /// The account of an analysis that counted `analysed` packets, and found no room for `full`.
    pub(crate) fn new(
        name: String,
        place: AnalysisPlace,
        (analysed, full): (u64, u64),
        ledger: &ProbeLedger,
    ) -> Self {
        let kernel = ledger.kernel.unwrap_or_default();
        let (captured, not_captured, not_ip, nested) = match place {
            AnalysisPlace::Workers => (ledger.captured, ledger.not_captured, ledger.not_ip, 0),
            AnalysisPlace::Kernel => (kernel.seen, 0, kernel.not_ip, kernel.nested),
        };
        AnalysisLedger {
            name,
            place,
            captured,
            analysed,
            not_captured,
            not_ip,
            disabled: captured.saturating_sub(analysed + not_ip + full + nested),
            full,
            nested,
        }
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "where": self.place.word(),
            "captured": self.captured,
            "analysed": self.analysed,
            "skipped": {
                "not_captured": self.not_captured,
                "not_ip": self.not_ip,
                "disabled": self.disabled,
                "full": self.full,
                "nested": self.nested,
            },
        })
    }
}

impl ProbeLedger {
    /// The ledger as a JSON object.
    pub fn json(&self) -> Value {
        let exporters = self.exporters.iter().map(|(name, exporter)| {
            json!({
                "name": name,
                "written": exporter.written,
                "dropped_queue_full": exporter.dropped_queue_full,
                "dropped_failed": exporter.dropped_failed,
                "waiting": exporter.waiting,
                "reconnects": exporter.reconnects,
            })
        });
        json!({
            "type": "probe",
            "captured": self.captured,
            "analysed": self.analysed,
            "skipped": {
                "not_captured": self.not_captured,
                "not_ip": self.not_ip,
                "disabled": self.disabled,
            },
            "analyses": self.analyses.iter().map(AnalysisLedger::json).collect::<Vec<_>>(),
            "flows": {
                "now": self.flows.flows,
                "records": self.flows.records,
                "evicted": self.flows.evicted,
                "not_sampled": self.flows.not_sampled,
                "payload_no_room": self.flows.payload.no_room,
                "payload_unread": self.flows.payload.unread,
            },
            "kernel": self.kernel.map(|kernel| json!({
                "seen": kernel.seen,
                "bytes": kernel.bytes,
                "analysed": kernel.analysed,
                "skipped": {
                    "not_ip": kernel.not_ip,
                    "disabled": kernel.disabled,
                    "full": kernel.full,
                    "nested": kernel.nested,
                },
            })),
            "parts_dropped": self.parts_dropped,
            "exporters": exporters.collect::<Vec<_>>(),
            "libraries": self.libraries.iter().map(LibraryLedger::json).collect::<Vec<_>>(),
        })
    }

    /// Records that exporters lost, because a queue was full or writing failed.
    pub fn records_lost(&self) -> u64 {
        let lost =
            |exporter: &ExportCounters| exporter.dropped_queue_full + exporter.dropped_failed;
        self.exporters
            .iter()
            .map(|(_, exporter)| lost(exporter))
            .sum()
    }
}
