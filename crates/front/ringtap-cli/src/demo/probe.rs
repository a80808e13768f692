// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo's probe: one worker that makes a record of each flow.

use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};

use anyhow::{Context, Result, anyhow};
use ringtap::{Capture, Facts};
use ringtap_explain::report;
use ringtap_ipc::mutex::lock;
use ringtap_net::affinity;
use ringtap_probe::analysis::AnalysisKind;
use ringtap_probe::export::text::flow_line;
use ringtap_probe::export::{ExportError, Exporter, WhenFull};
use ringtap_probe::record::{FlowRecord, Record};
use ringtap_probe::{Probe, ProbeOutcome, ProbePlan};

use crate::print::{line as say, note};

/// Flow records that are printed.
const SHOWN: usize = 3;

/// Packets of all flow records, and the largest records.
#[derive(Default)]
pub(super) struct FlowSummary {
    /// Packets of all records.
    pub(super) packets: u64,
    /// The records with the most packets, the largest first.
    largest: Vec<FlowRecord>,
}

impl FlowSummary {
    fn add(&mut self, flow: &FlowRecord) {
        self.packets += packets(flow);
        self.largest.push(flow.clone());
        self.largest
            .sort_by_key(|flow| std::cmp::Reverse(packets(flow)));
        self.largest.truncate(SHOWN);
    }
}

fn packets(flow: &FlowRecord) -> u64 {
    flow.forward.packets + flow.backward.packets
}

/// Takes the probe's records.
#[derive(Clone, Default)]
struct SummaryExporter(Arc<Mutex<FlowSummary>>);

impl Exporter for SummaryExporter {
    fn name(&self) -> String {
        "demo".to_owned()
    }

    fn write(&mut self, records: &[Record]) -> Result<(), ExportError> {
        let mut summary = lock(&self.0);
        for record in records {
            if let Record::Flow(flow) = record {
                summary.add(flow);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        Ok(())
    }
}

/// The probe's thread.
pub(super) struct RunningProbe<'scope> {
    thread: ScopedJoinHandle<'scope, Result<ProbeOutcome>>,
    summary: SummaryExporter,
    facts: Facts,
}

/// What the probe captured, analysed and recorded.
pub(super) struct ProbeResult {
    pub(super) outcome: ProbeOutcome,
    pub(super) flows: FlowSummary,
}

/// Starts the probe on the CPU, with flow records as its only analysis.
pub(super) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    capture: Capture,
    cpu: Option<usize>,
) -> RunningProbe<'scope> {
    let summary = SummaryExporter::default();
    let exporter = summary.clone();
    let facts = capture.facts().clone();
    let thread = scope.spawn(move || {
        affinity::pin(cpu)?;
        let mut plan = ProbePlan::standard(None);
        plan.analyses
            .retain(|one| matches!(one.kind, AnalysisKind::Flows(_)));
        let probe = Probe::start(
            vec![capture],
            None,
            plan,
            vec![Box::new(exporter)],
            WhenFull::Drop,
            None,
        )?;
        Ok(probe.run(|line| note(format_args!("ringtap: {line}")))?)
    });
    RunningProbe {
        thread,
        summary,
        facts,
    }
}

impl RunningProbe<'_> {
    pub(super) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the capture, and prints the probe's counters and largest flows.
    pub(super) fn join(self) -> Result<ProbeResult> {
        let ended = self.thread.join();
        let ended = ended.map_err(|_panic| anyhow!("the thread of the probe has ended"))?;
        let mut outcome = ended.context("the probe")?;
        // The only exporter is [`SummaryExporter`], of which users need no account.
        outcome.ledger.exporters.clear();
        let flows = std::mem::take(&mut *lock(&self.summary.0));
        say("\nThe probe:")?;
        let title = format!("{}:", self.facts.device);
        say(report::counters(
            &title,
            &self.facts.offered_from,
            &outcome.counters,
        ))?;
        say(&outcome.ledger)?;
        say("  the flows with the most packets:")?;
        for flow in &flows.largest {
            say(format_args!("    {}", flow_line(flow)))?;
        }
        Ok(ProbeResult { outcome, flows })
    }
}

impl ProbeResult {
    /// Whether the counters balance, and each packet was analysed and is in a flow record.
    pub(super) fn is_good(&self) -> bool {
        let ProbeOutcome {
            ledger,
            counters,
            result,
        } = &self.outcome;
        result.is_ok()
            && counters.balance().holds()
            && counters.delivered > 0
            && ledger.analysed == counters.delivered
            && self.flows.packets == ledger.analysed
    }
}
