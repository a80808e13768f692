// SPDX-License-Identifier: MIT OR Apache-2.0
//! Account of a probe: what it captured, analysed, skipped and exported.

use std::fmt;

use ringtap::{Counters, Dropped};
use ringtap_explain::text;
use serde::Serialize;
use serde_json::{Value, json};

use crate::analysis::{AnalysisPlan, CountedIn};
use crate::flows::FlowCounters;

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
    pub place: CountedIn,
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

/// Account of a library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LibraryLedger {
    /// Name of the analysis.
    pub name: String,
    /// Packets whose results have arrived.
    pub analysed: u64,
    /// Processes that ended by themselves.
    pub crashes: u64,
    /// Processes that were killed because they did not answer.
    pub hangs: u64,
    /// Values that exceeded the limit of one interval.
    #[serde(rename = "values_left_out")]
    pub left_out: u64,
    /// Packets without results: lost by processes that ended, or still to come.
    pub not_analysed: u64,
}

/// Account of one exporter: `sent = written + dropped + waiting`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportCounters {
    /// Name of the exporter.
    pub name: String,
    /// Records that the exporter wrote or holds in its own buffers.
    pub written: u64,
    /// Records that found the queue full, because the destination is slow.
    pub dropped_queue_full: u64,
    /// Records that could not be written, because the destination is gone or refuses them.
    pub dropped_failed: u64,
    /// Records in the queue.
    pub waiting: u64,
    /// Times that a destination which had failed for a second or longer was back.
    pub reconnects: u64,
    /// Whether the reading program ended first.
    #[serde(skip)]
    pub unread: bool,
}

impl fmt::Display for ProbeLedger {
    /// Several lines, each with an indent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = text::grouped;
        let flows = &self.flows;
        write!(
            f,
            "  analysed {} of {} packets; skipped {} not IP, {} not sampled\n  not captured: {} packets, because the \
         workers were behind\n  {} flow records, {} of them evicted",
            number(self.analysed),
            number(self.captured),
            number(self.skipped.not_ip + self.skipped.disabled),
            number(flows.not_sampled),
            number(self.skipped.not_captured),
            number(flows.records),
            number(flows.evicted),
        )?;
        if let Some(kernel) = &self.kernel {
            write!(
                f,
                "\n  in the kernel: analysed {} of {} packets; skipped {} not IP, {} without room",
                number(kernel.analysed),
                number(kernel.seen),
                number(kernel.skipped.not_ip + kernel.skipped.disabled),
                number(kernel.skipped.full + kernel.skipped.nested),
            )?;
        }
        for library in &self.libraries {
            write!(
                f,
                "\n  {}: analysed {} packets, {} not; {} crashes, {} hangs",
                library.name,
                number(library.analysed),
                number(library.not_analysed),
                library.crashes,
                library.hangs
            )?;
        }
        for exporter in &self.exporters {
            write!(
                f,
                "\n  {}: {} records written, {} lost, {} reconnects",
                exporter.name,
                number(exporter.written),
                number(exporter.lost() + exporter.waiting),
                exporter.reconnects
            )?;
        }
        Ok(())
    }
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
    fn new(plan: &AnalysisPlan) -> Self {
        AnalysisLedger {
            name: plan.name.clone(),
            place: plan.place,
            captured: 0,
            analysed: 0,
            skipped: SkippedPackets::default(),
        }
    }
}

impl ProbeLedger {
    /// A ledger without packets, for these analyses.
    pub(crate) fn new(plans: &[AnalysisPlan]) -> Self {
        ProbeLedger {
            analyses: plans.iter().map(AnalysisLedger::new).collect(),
            ..ProbeLedger::default()
        }
    }

    /// Adds the counts of a worker.
    pub(crate) fn add(&mut self, worker: &ProbeLedger) {
        if worker.kernel.is_some() {
            self.kernel = worker.kernel;
        } else {
            self.captured += worker.captured;
            self.analysed += worker.analysed;
            self.skipped.not_ip += worker.skipped.not_ip;
            self.skipped.disabled += worker.skipped.disabled;
        }
        self.flows += worker.flows;
        self.parts_dropped += worker.parts_dropped;
        for one in &worker.analyses {
            let mut own = self.analyses.iter_mut();
            match own.find(|own| own.name == one.name && own.place == one.place) {
                Some(own) => {
                    own.analysed += one.analysed;
                    own.skipped.full += one.skipped.full;
                }
                None => self.analyses.push(one.clone()),
            }
        }
    }

    /// Takes the counts of the worker whose earlier counts these are. Its analyses only become more.
    pub(crate) fn update(&mut self, worker: &ProbeLedger) {
        self.captured = worker.captured;
        self.analysed = worker.analysed;
        self.skipped = worker.skipped;
        self.flows = worker.flows;
        self.parts_dropped = worker.parts_dropped;
        self.kernel = worker.kernel;
        let known = self.analyses.len();
        for (own, one) in self.analyses.iter_mut().zip(&worker.analyses) {
            own.analysed = one.analysed;
            own.skipped = one.skipped;
        }
        self.analyses.extend_from_slice(&worker.analyses[known..]);
    }

    /// Position of the account of an analysis of a worker.
    pub(crate) fn position(&mut self, plan: &AnalysisPlan) -> usize {
        let found = self.analyses.iter().position(|one| one.name == plan.name);
        found.unwrap_or_else(|| {
            self.analyses.push(AnalysisLedger::new(plan));
            self.analyses.len() - 1
        })
    }

    /// Counts what the analyses and the libraries did not see.
    pub(crate) fn complete(&mut self) {
        let kernel = self.kernel.unwrap_or_default();
        for one in &mut self.analyses {
            let (captured, skipped) = match one.place {
                CountedIn::Workers => (self.captured, self.skipped),
                CountedIn::Kernel => (kernel.seen, kernel.skipped),
            };
            let full = one.skipped.full;
            let others = skipped.not_ip + full + skipped.nested;
            one.captured = captured;
            one.skipped = SkippedPackets {
                disabled: captured.saturating_sub(one.analysed + others),
                full,
                ..skipped
            };
        }
        self.complete_libraries(self.captured);
    }

    /// Counts packets without results of libraries, of all that were captured. A library may report any number:
    /// more packets than were captured are shown as that many.
    pub(crate) fn complete_libraries(&mut self, captured: u64) {
        for one in &mut self.libraries {
            one.analysed = one.analysed.min(captured);
            one.not_analysed = captured - one.analysed;
        }
    }

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

impl ExportCounters {
    /// Records that were lost, because the queue was full or writing failed.
    pub fn lost(&self) -> u64 {
        self.dropped_queue_full + self.dropped_failed
    }

    /// Records that the destination refused or did not take to the end, unless nobody reads them any more.
    pub fn failed(&self) -> u64 {
        if self.unread {
            0
        } else {
            self.dropped_failed + self.waiting
        }
    }
}
