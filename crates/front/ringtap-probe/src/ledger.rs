// SPDX-License-Identifier: MIT OR Apache-2.0
//! Account of a probe: what it captured, analysed, skipped and exported.

use ringtap::{Counters, Dropped};
use serde::Serialize;
use serde_json::{Value, json};

use crate::analysis::AnalysisPlace;
use crate::export::ExportCounters;
use crate::flows::FlowCounters;
use crate::library::LibraryLedger;

/// Account of a probe: `captured = analysed + not_ip + disabled`; serialises as the object of `--json`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(tag = "type", rename = "probe")]
pub struct ProbeLedger {
    /// Packets that the workers received.
    pub captured: u64,
    /// Packets that all analyses saw.
    pub analysed: u64,
    /// Packets that the workers did not analyse.
    pub skipped: SkippedPackets,
    /// Flow metering.
    pub flows: FlowCounters,
    /// Workers' parts of results that were lost because the probe was busy.
    pub parts_dropped: u64,
    /// Exporters.
    pub exporters: Vec<ExportCounters>,
    /// Users' own analyses.
    pub libraries: Vec<LibraryLedger>,
    /// The analyses in the kernel, if there are any.
    pub kernel: Option<KernelLedger>,
    /// Each analysis of the plan, and those that it had before.
    pub analyses: Vec<AnalysisLedger>,
}

/// Packets without analysis, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SkippedPackets {
    /// The capture skipped them, because workers were behind or the pool was full: not among the captured ones.
    pub not_captured: u64,
    /// They are not IP.
    pub not_ip: u64,
    /// The analysis was off, or all analyses.
    pub disabled: u64,
    /// They belong to new flows for which the kernel had no room; `sizes` has counted them.
    pub full: u64,
    /// They met a program in the kernel that had not ended.
    pub nested: u64,
}

/// Account of one analysis: `captured = analysed + not_ip + disabled + full + nested`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AnalysisLedger {
    /// Name of the analysis.
    pub name: String,
    /// Where it runs.
    #[serde(rename = "where")]
    pub place: AnalysisPlace,
    /// Packets that the workers received, or that the programs in the kernel saw.
    pub captured: u64,
    /// Packets that the analysis counted.
    pub analysed: u64,
    /// Packets that the analysis did not count.
    pub skipped: SkippedPackets,
}

/// Account of the analyses in the kernel: `seen = analysed + not_ip + disabled + full + nested`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct KernelLedger {
    /// Packets that the programs saw.
    pub seen: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Packets that all analyses counted.
    pub analysed: u64,
    /// Packets that the programs did not count.
    pub skipped: SkippedPackets,
}

impl KernelLedger {
    /// The account as that of a capture.
    pub(crate) fn counters(&self) -> Counters {
        let dropped = Dropped {
            kernel: self.skipped.nested,
            pool_full: self.skipped.full,
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
        let (captured, skipped) = match place {
            AnalysisPlace::Workers => (ledger.captured, ledger.skipped),
            AnalysisPlace::Kernel => {
                let kernel = ledger.kernel.unwrap_or_default();
                (kernel.seen, kernel.skipped)
            }
        };
        let others = skipped.not_ip + full + skipped.nested;
        AnalysisLedger {
            name,
            place,
            captured,
            analysed,
            skipped: SkippedPackets {
                disabled: captured.saturating_sub(analysed + others),
                full,
                ..skipped
            },
        }
    }
}

impl ProbeLedger {
    /// The ledger as a JSON object.
    pub fn json(&self) -> Value {
        json!(self)
    }

    /// Records that exporters lost, because a queue was full or writing failed.
    pub fn records_lost(&self) -> u64 {
        self.exporters.iter().map(ExportCounters::lost).sum()
    }

    /// Records that a destination refused or did not take to the end.
    pub fn records_failed(&self) -> u64 {
        self.exporters.iter().map(ExportCounters::failed).sum()
    }
}
