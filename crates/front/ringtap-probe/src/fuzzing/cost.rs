// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processor time of packets that a sender made to be expensive, against that of ordinary ones.
//!
//! Invariants
//! - A cost is the least of several runs of [`COPIES`] equal packets in processor time of the thread: other load
//!   on the machine does not count.

use ringtap_filter::Headers;
use ringtap_filter::hash::Link;
use rustix::time::{ClockId, clock_gettime};

use super::{datagram, hostile, segment};
use crate::flows::{FlowMeter, FlowOptions};
use crate::packet::{Dissected, Secret};
use crate::record::Record;

/// Flows that get the same packets, so that they take long enough to be measured.
const COPIES: u16 = 64;
/// Runs of which the fastest counts.
const RUNS: usize = 4;
/// Measurements of what seems to be too expensive.
const ATTEMPTS: usize = 8;
/// Most that a packet may cost, in percent of the median of ordinary ones of its kind.
pub const MAX_PERCENT: u64 = 800;
/// Client ports of the copies.
const FIRST_PORT: u16 = 40_000;

/// Class of a payload; costs are compared within a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadKind {
    /// DNS in datagrams.
    Dns,
    /// DNS over TCP.
    DnsStream,
    /// TLS over TCP.
    Tls,
    /// HTTP/1 requests over TCP.
    Http,
}

/// Payloads of one flow.
#[derive(Clone, Debug)]
pub struct PayloadTrace {
    /// Their class.
    pub kind: PayloadKind,
    /// One of each packet, in order.
    pub payloads: Vec<Vec<u8>>,
    /// Whether the server sends them.
    pub is_back: bool,
}

impl PayloadKind {
    /// All kinds.
    pub const ALL: [PayloadKind; 4] = [
        PayloadKind::Dns,
        PayloadKind::DnsStream,
        PayloadKind::Tls,
        PayloadKind::Http,
    ];

    fn server_port(self) -> u16 {
        match self {
            PayloadKind::Dns | PayloadKind::DnsStream => 53,
            PayloadKind::Tls => 443,
            PayloadKind::Http => 80,
        }
    }

    /// Median of the costs of ordinary packets of this kind, in nanoseconds.
    #[must_use]
    pub fn ordinary_ns(self) -> u64 {
        let all = hostile::ordinary(self);
        let mut costs: Vec<_> = all.iter().flat_map(PayloadTrace::costs_ns).collect();
        costs.sort_unstable();
        costs.get(costs.len() / 2).copied().unwrap_or_default()
    }
}

impl PayloadTrace {
    /// Costs of its packets in nanoseconds.
    #[must_use]
    pub fn costs_ns(&self) -> Vec<u64> {
        let frames = self.frames();
        let mut costs = vec![u64::MAX; frames.len()];
        for _ in 0..RUNS {
            let mut run = CostRun::new();
            for (cost, copies) in costs.iter_mut().zip(&frames) {
                let start = processor_time_ns();
                copies.iter().for_each(|frame| run.meter(frame));
                *cost = (*cost).min(processor_time_ns() - start);
            }
        }
        costs.iter().map(|cost| cost / u64::from(COPIES)).collect()
    }

    /// Messages and streams of one flow that could not be read.
    #[cfg(test)]
    pub(super) fn unread(&self) -> u64 {
        let mut run = CostRun::new();
        for copies in self.frames() {
            run.meter(&copies[0]);
        }
        run.flows.counters().payload_unread
    }

    /// Cost of its most expensive packet, in percent of [`PayloadKind::ordinary_ns`].
    ///
    /// Where that is more than `most`, both are measured again: what else a processor does may slow one of them.
    #[must_use]
    pub fn cost_percent(&self, most: u64) -> u64 {
        let mut least = u64::MAX;
        for _ in 0..ATTEMPTS {
            let worst = self.costs_ns().into_iter().max().unwrap_or_default();
            least = least.min(100 * worst / self.kind.ordinary_ns().max(1));
            if least <= most {
                break;
            }
        }
        least
    }

    pub(super) fn assert_ordinary(&self) -> u64 {
        let percent = self.cost_percent(MAX_PERCENT);
        let lengths: Vec<_> = self.payloads.iter().map(Vec::len).collect();
        assert!(
            percent <= MAX_PERCENT,
            "{:?}: {percent} % of an ordinary packet; payloads of {lengths:?} bytes",
            self.kind
        );
        percent
    }

    /// The packets, [`COPIES`] of each.
    fn frames(&self) -> Vec<Vec<Vec<u8>>> {
        let mut sequence = 0_u32;
        let mut frames = Vec::with_capacity(self.payloads.len());
        for payload in &self.payloads {
            let copies = (FIRST_PORT..FIRST_PORT + COPIES).map(|client| {
                let ports = (client, self.kind.server_port());
                match self.kind {
                    PayloadKind::Dns => datagram(ports, self.is_back, payload),
                    _ => segment(ports, self.is_back, sequence, payload),
                }
            });
            frames.push(copies.collect());
            sequence = sequence.wrapping_add(u32::try_from(payload.len()).unwrap_or_default());
        }
        frames
    }
}

/// Measures the payloads that `input` chooses, and returns [`PayloadTrace::cost_percent`].
///
/// # Panics
///
/// When a packet costs more than [`MAX_PERCENT`].
pub fn assert_ordinary(input: &[u8]) -> u64 {
    hostile::hostile(input).assert_ordinary()
}

/// Flows without earlier packets.
struct CostRun {
    flows: FlowMeter,
    secret: Secret,
    records: Vec<Record>,
    time_ns: u64,
}

impl CostRun {
    fn new() -> Self {
        let secret = Secret::random();
        let options = FlowOptions {
            max_flows: 1024,
            ..FlowOptions::default()
        };
        CostRun {
            flows: FlowMeter::new(options, secret, None),
            secret,
            records: Vec::new(),
            time_ns: 1_700_000_000_000_000_000,
        }
    }

    fn meter(&mut self, frame: &[u8]) {
        self.time_ns += 1000;
        let (link, headers) = (Link::Ip, Headers::Inner);
        let wire = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let packet = Dissected::new(self.time_ns, frame, wire, link, headers, &self.secret);
        if let Some(mut packet) = packet {
            let packets = std::slice::from_mut(&mut packet);
            self.flows.packets(packets, &mut self.records);
        }
        self.records.clear();
    }
}

fn processor_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanoseconds = time.tv_sec * 1_000_000_000 + time.tv_nsec;
    u64::try_from(nanoseconds).unwrap_or_default()
}
