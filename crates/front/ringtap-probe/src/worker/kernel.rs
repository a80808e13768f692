// SPDX-License-Identifier: MIT OR Apache-2.0
//! Worker of the analyses in the kernel: takes the kernel's counts at intervals and makes records of them.
//!
//! Invariants
//! - The worker sees no packet; its work depends on the number of flows and keys.
//! - Counts belong to the interval of their first packet; those of sizes to the one in which they are taken.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use ringtap_capture::CaptureError;
use ringtap_capture::meter::{FlowCounts, KernelMeter, MeterCounters};
use ringtap_ipc::time::{nanoseconds, now_ns};

use super::{ProbeWorker, WorkerReport};
use crate::flows::FlowUpdate;
use crate::ledger::{KernelLedger, SkippedPackets};
use crate::outside::PacketOutside;
use crate::packet::{ICMP, ICMPV6, PacketKey, Secret, icmp_ports};

/// Time between two looks at the kernel's counts, at whole multiples of it.
pub(crate) const TAKING: Duration = Duration::from_secs(1);
/// Longest time without a look at the request to stop.
const LOOK: Duration = Duration::from_millis(100);

impl ProbeWorker {
    /// Takes counts until the meter shall end or fails, and reports the end.
    pub(crate) fn run_meter(mut self, mut meter: KernelMeter) {
        let ending = meter.ending();
        let (mut reported, mut parts) = (MeterCounters::default(), Vec::new());
        let mut outcome = Ok(());
        while outcome.is_ok() && !ending.load(Relaxed) {
            wait_for_counts(&meter, &ending);
            outcome = self.take(&mut meter, &mut reported, &mut parts);
            self.between_batches();
        }
        meter.stop();
        let rest = self.take(&mut meter, &mut reported, &mut parts);
        self.end_of_capture();
        let outcome = outcome.and(rest).map_err(ringtap::Error::from);
        let ended = WorkerReport::Ended(self.setup.number, None, outcome);
        let _probe_is_gone = self.setup.reports.send(ended);
    }

    /// Takes all counts since those that were reported, and adds them to all analyses.
    fn take(
        &mut self,
        meter: &mut KernelMeter,
        reported: &mut MeterCounters,
        parts: &mut Vec<FlowUpdate>,
    ) -> Result<(), CaptureError> {
        parts.clear();
        let secret = self.setup.secret;
        let outcome = meter.take(|counts| parts.push(part(counts, &secret)));
        parts.sort_unstable_by_key(|part| part.counts.first_ns);
        for flows in &mut self.flows {
            flows.meter.parts(parts, &mut self.records);
        }
        let counters = meter.counters();
        for at in 0..self.meters.len() {
            for part in &*parts {
                self.enter_interval(at, part.counts.first_ns);
                let meter = &mut self.meters[at];
                meter.seen.add(part.counts.last_ns);
                // `Meter::sizes` counts for sizes and load; the kernel has no other kinds.
                meter
                    .meter
                    .key(&part.key, part.counts.bytes, part.counts.packets);
            }
            let mut sizes = counters.sizes;
            for (sum, before) in sizes.iter_mut().zip(&reported.sizes) {
                *sum = (sum.0 - before.0, sum.1 - before.1);
            }
            if sizes.iter().any(|(packets, _)| *packets > 0) {
                let time_ns = now_ns().saturating_sub(nanoseconds(TAKING) / 2);
                self.enter_interval(at, time_ns);
                self.meters[at].meter.sizes(&sizes);
            }
        }
        self.account(&counters, reported);
        outcome
    }

    /// Makes sure that the interval of an analysis holds this time.
    fn enter_interval(&mut self, at: usize, time_ns: u64) {
        if !self.meters[at].interval.holds(time_ns) {
            self.next_interval(at, time_ns);
        }
        self.meters[at].seen.add(time_ns);
    }

    fn account(&mut self, now: &MeterCounters, reported: &mut MeterCounters) {
        self.count_analysed(now.analysed - reported.analysed);
        let full = now.full - reported.full;
        let analyses = &mut self.ledger.analyses;
        for flows in &self.flows {
            analyses[flows.account].skipped.full += full;
        }
        for meter in &self.meters {
            let own = &mut analyses[meter.account];
            if meter.plan.kind.counts_without_room() {
                own.analysed += full;
            } else {
                own.skipped.full += full;
            }
        }
        self.ledger.kernel = Some(KernelLedger {
            seen: now.seen,
            bytes: now.bytes,
            analysed: self.ledger.analysed,
            skipped: SkippedPackets {
                not_captured: 0,
                not_ip: now.not_ip,
                disabled: self.ledger.skipped.disabled,
                full: now.full,
                nested: now.nested,
            },
        });
        *reported = *now;
    }
}

/// Waits for the next multiple of [`TAKING`], or until the kernel's room for flows is nearly full.
fn wait_for_counts(meter: &KernelMeter, stop: &AtomicBool) {
    let (start_ns, length_ns) = (now_ns(), nanoseconds(TAKING));
    let end_ns = start_ns - start_ns % length_ns + length_ns;
    loop {
        let now_ns = now_ns();
        // After a step of the clock, too.
        if now_ns >= end_ns || now_ns < start_ns || stop.load(Relaxed) {
            return;
        }
        if meter.wait(LOOK.min(Duration::from_nanos(end_ns - now_ns))) {
            return;
        }
    }
}

fn part(counts: FlowCounts, secret: &Secret) -> FlowUpdate {
    let words = |[a, b, c, d]: [u32; 4]| {
        if counts.is_ipv6 {
            [join(a, b), join(c, d)]
        } else {
            [0, a.into()]
        }
    };
    let ports = match counts.protocol {
        ICMP | ICMPV6 if counts.ports.1 != 0 => icmp_ports(counts.protocol, counts.ports.0),
        _ => counts.ports,
    };
    FlowUpdate {
        key: PacketKey {
            source: words(counts.source),
            destination: words(counts.destination),
            ports,
            vlan: counts.vlan,
            protocol: counts.protocol,
            is_ipv6: counts.is_ipv6,
            outside: secret.hash_outside(&PacketOutside::from_counts(&counts)),
        },
        counts,
    }
}

fn join(upper: u32, lower: u32) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}
