// SPDX-License-Identifier: MIT OR Apache-2.0
//! Account of a probe: what it captured, analysed, skipped and exported.

use ringtap::{Counters, Dropped};
use serde_json::{Value, json};

use crate::export::ExportCounters;
use crate::flows::FlowCounters;
use crate::library::LibraryLedger;

/// Account of a probe: `captured = analysed + not_ip + disabled`.
#[derive(Clone, Debug, Default)]
pub struct ProbeLedger {
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
            "skipped": { "not_ip": self.not_ip, "disabled": self.disabled },
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
