// SPDX-License-Identifier: MIT OR Apache-2.0
//! Analyses: what a worker measures on its packets, merged with the other workers' parts.
//!
//! Invariants
//! - A worker's part has bounded memory, whatever the packets contain.

mod cardinality;
mod keys;
mod sizes;
mod times;
mod top;

use std::collections::BTreeMap;
use std::time::Duration;

use ringtap_capture::meter::{KeyFields, SIZE_RANGES};
use serde::Serialize;

use crate::application::DnsName;
use crate::flows::FlowOptions;
use crate::packet::{Dissected, PacketKey};
use crate::record::{Measurement, as_value};
use cardinality::Distinct;
pub use keys::{KeyField, protocol_word};
use sizes::FrameSizes;
pub use times::GapScope;
use times::{PacketGaps, RoundTrips, TimeHistogram};
use top::TopKeys;

/// Factor in each loop of `load`; a plain one would become shifts in workers and not in the kernel.
const LOOP_FACTOR: u32 = 1_664_525;

/// One analysis as the user asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisPlan {
    /// Name in results and commands; unique.
    pub name: String,
    /// The quantity that the analysis measures.
    pub kind: AnalysisKind,
    /// Time between results; `None`: one result at the end.
    pub every: Option<Duration>,
    /// Whether the analysis runs.
    pub enabled: bool,
    /// Where the packets are counted.
    pub place: CountedIn,
}

/// Where an analysis counts packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CountedIn {
    /// In the workers, which read the packets (Adviser).
    #[default]
    Workers,
    /// In the kernel; no packet goes to user space (Ksensor).
    Kernel,
}

/// Quantity that an analysis measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnalysisKind {
    /// Flow records.
    Flows(FlowOptions),
    /// The keys with most bytes.
    Top {
        /// Which part of a packet's key counts.
        by: KeyField,
        /// Number of keys in a result.
        count: u32,
    },
    /// Packets by the length of their frames.
    Sizes,
    /// Number of distinct keys, estimated.
    Cardinality {
        /// Which part of a packet's key counts.
        by: KeyField,
    },
    /// Round trips of TCP handshakes.
    RoundTrips,
    /// Times between packets.
    Gaps {
        /// Packets between which the time counts.
        by: GapScope,
    },
    /// The names with most questions of DNS datagrams.
    Dns {
        /// Number of names in a result.
        count: u32,
    },
    /// A number of loops for each packet, to measure the probe itself.
    Load {
        /// Loops for each packet.
        loops: u32,
    },
}

impl AnalysisKind {
    /// The fields of the key by which the kernel counts packets for this analysis.
    pub(crate) fn key_fields(self) -> KeyFields {
        let (by, vlan) = match self {
            AnalysisKind::Flows(_) => (KeyField::Flow, true),
            AnalysisKind::Top { by, .. } | AnalysisKind::Cardinality { by } => (by, false),
            _ => return KeyFields::default(),
        };
        KeyFields {
            source: !matches!(
                by,
                KeyField::Destination | KeyField::DestinationNet(_) | KeyField::Port
            ),
            destination: !matches!(
                by,
                KeyField::Source | KeyField::SourceNet(_) | KeyField::Port
            ),
            ports: matches!(by, KeyField::Port | KeyField::Flow),
            vlan,
        }
    }

    /// Whether the analysis adds up the packets of keys, which flow meters do as well.
    pub(crate) fn counts_keys(self) -> bool {
        matches!(
            self,
            AnalysisKind::Top { .. } | AnalysisKind::Cardinality { .. }
        )
    }

    /// Whether the analysis reads payload of packets.
    pub(crate) fn needs_payload(self) -> bool {
        match self {
            AnalysisKind::Flows(options) => options.payload_bytes > 0 || options.ndpi,
            AnalysisKind::Dns { .. } => true,
            AnalysisKind::Top { .. }
            | AnalysisKind::Sizes
            | AnalysisKind::Cardinality { .. }
            | AnalysisKind::RoundTrips
            | AnalysisKind::Gaps { .. }
            | AnalysisKind::Load { .. } => false,
        }
    }

    /// Whether the kernel can count packets for the analysis.
    pub(crate) fn fits_kernel(self) -> bool {
        matches!(
            self,
            AnalysisKind::Flows(_)
                | AnalysisKind::Top { .. }
                | AnalysisKind::Sizes
                | AnalysisKind::Cardinality { .. }
                | AnalysisKind::Load { .. }
        )
    }

    /// Whether the kernel counts a packet also if it has no room for its flow.
    pub(crate) fn counts_without_room(self) -> bool {
        matches!(self, AnalysisKind::Sizes | AnalysisKind::Load { .. })
    }

    /// Loops for each packet.
    pub(crate) fn loops(self) -> u32 {
        match self {
            AnalysisKind::Load { loops } => loops,
            _ => 0,
        }
    }

    /// Names of the values in results that conditions can compare.
    pub(crate) fn value_names(self) -> &'static [&'static str] {
        match self {
            AnalysisKind::Flows(_) => &[],
            AnalysisKind::Top { .. } => &TOP_VALUES,
            AnalysisKind::Dns { .. } => &DNS_VALUES,
            AnalysisKind::Sizes => &["packets", "bytes"],
            AnalysisKind::Cardinality { .. } => &["distinct"],
            AnalysisKind::RoundTrips | AnalysisKind::Gaps { .. } => &["count", "mean_ns"],
            AnalysisKind::Load { .. } => &["packets"],
        }
    }
}

/// Values of `top` and of `dns`: the weight, a second count, and the most by which the weight is too low.
const TOP_VALUES: [&str; 3] = ["bytes", "packets", "error_bytes"];
const DNS_VALUES: [&str; 3] = ["questions", "failures", "error_questions"];

/// A worker's part of an analysis with results at intervals.
#[derive(Debug)]
pub(crate) enum Meter {
    Top(KeyField, u32, TopKeys<PacketKey>),
    Dns(u32, TopKeys<String>),
    Sizes(FrameSizes),
    Cardinality(KeyField, Distinct),
    RoundTrips(Box<RoundTrips>),
    Gaps(Box<PacketGaps>),
    /// Loops for each packet, and packets.
    Load(u32, u64),
    /// Values of a user's library by name and key.
    Sums(BTreeMap<(String, Option<String>), f64>),
}

impl Meter {
    /// An empty part; `None` for flows, which have no results at intervals.
    pub(crate) fn new(kind: AnalysisKind) -> Option<Self> {
        Some(match kind {
            AnalysisKind::Flows(_) => return None,
            AnalysisKind::Top { by, count } => Meter::Top(by, count, TopKeys::new(count)),
            AnalysisKind::Dns { count } => Meter::Dns(count, TopKeys::new(count)),
            AnalysisKind::Sizes => Meter::Sizes(FrameSizes::default()),
            AnalysisKind::Cardinality { by } => Meter::Cardinality(by, Distinct::new()),
            AnalysisKind::RoundTrips => Meter::RoundTrips(Box::new(RoundTrips::new())),
            AnalysisKind::Gaps { by } => Meter::Gaps(Box::new(PacketGaps::new(by))),
            AnalysisKind::Load { loops } => Meter::Load(loops, 0),
        })
    }

    /// Takes the part of an interval that is over, and goes on with an empty one.
    pub(crate) fn take(&mut self) -> Self {
        let empty = match self {
            Meter::Top(by, count, _) => Meter::Top(*by, *count, TopKeys::new(*count)),
            Meter::Dns(count, _) => Meter::Dns(*count, TopKeys::new(*count)),
            Meter::Sizes(_) => Meter::Sizes(FrameSizes::default()),
            Meter::Cardinality(by, _) => Meter::Cardinality(*by, Distinct::new()),
            Meter::RoundTrips(trips) => return Meter::RoundTrips(Box::new(trips.take())),
            Meter::Gaps(gaps) => return Meter::Gaps(Box::new(gaps.take())),
            Meter::Load(loops, _) => Meter::Load(*loops, 0),
            Meter::Sums(_) => Meter::Sums(BTreeMap::new()),
        };
        std::mem::replace(self, empty)
    }

    /// Counts one packet.
    #[inline]
    pub(crate) fn packet(&mut self, packet: &Dissected) {
        match self {
            Meter::Top(..) | Meter::Cardinality(..) => {
                self.key(&packet.key, packet.ip_bytes.into(), 1);
            }
            Meter::Dns(_, names) => match DnsName::from_packet(packet) {
                Some(DnsName::Asked(name)) => names.add(name, 1, 0),
                Some(DnsName::Failed(name)) => names.add(name, 0, 1),
                None => {}
            },
            Meter::Sizes(sizes) => sizes.add(packet.frame_bytes),
            Meter::RoundTrips(trips) => trips.add(packet),
            Meter::Gaps(gaps) => gaps.add(packet),
            Meter::Load(loops, packets) => {
                let work = (0..*loops).fold(packet.frame_bytes, |sum, loops| {
                    std::hint::black_box(sum.wrapping_mul(LOOP_FACTOR).wrapping_add(loops))
                });
                std::hint::black_box(work);
                *packets += 1;
            }
            // Counted in a process of its own.
            Meter::Sums(_) => {}
        }
    }

    /// Counts packets with this key, where an analysis [counts keys](AnalysisKind::counts_keys).
    #[inline]
    pub(crate) fn key(&mut self, key: &PacketKey, bytes: u64, packets: u64) {
        match self {
            Meter::Top(by, _, keys) => keys.add(by.select(key), bytes, packets),
            Meter::Cardinality(by, distinct) => distinct.add(&by.select(key)),
            _ => {}
        }
    }

    /// Adds packets and bytes of each range of sizes.
    pub(crate) fn sizes(&mut self, ranges: &[(u64, u64); SIZE_RANGES]) {
        match self {
            Meter::Sizes(sizes) => sizes.add_all(ranges),
            Meter::Load(_, packets) => *packets += ranges.iter().map(|range| range.0).sum::<u64>(),
            _ => {}
        }
    }

    /// Adds another worker's part of the same analysis; nothing if the analysis changed meanwhile.
    pub(crate) fn merge(&mut self, other: Meter) {
        match (self, other) {
            (Meter::Top(_, _, keys), Meter::Top(_, _, more)) => keys.merge(more),
            (Meter::Dns(_, names), Meter::Dns(_, more)) => names.merge(more),
            (Meter::Sizes(sizes), Meter::Sizes(more)) => sizes.merge(&more),
            (Meter::Cardinality(_, distinct), Meter::Cardinality(_, more)) => distinct.merge(&more),
            (Meter::RoundTrips(trips), Meter::RoundTrips(more)) => {
                trips.server.merge(&more.server);
                trips.client.merge(&more.client);
            }
            (Meter::Gaps(gaps), Meter::Gaps(more)) => gaps.times.merge(&more.times),
            (Meter::Load(_, packets), Meter::Load(_, more)) => *packets += more,
            (Meter::Sums(sums), Meter::Sums(more)) => {
                for (place, value) in more {
                    *sums.entry(place).or_default() += value;
                }
            }
            _ => {}
        }
    }

    /// The results of an interval.
    pub(crate) fn results(self, analysis: &str, from_ns: u64, to_ns: u64) -> Vec<Measurement> {
        let measurement = |name: &str, key, values| Measurement {
            analysis: analysis.to_owned(),
            name: name.to_owned(),
            key,
            from_ns,
            to_ns,
            values,
        };
        let histogram = |name: &str, times: &TimeHistogram| -> Vec<_> {
            times
                .results()
                .into_iter()
                .map(|(range, values)| measurement(name, range, values))
                .collect()
        };
        match self {
            Meter::RoundTrips(trips) => {
                let mut results = histogram("server", &trips.server);
                results.extend(histogram("client", &trips.client));
                results
            }
            Meter::Gaps(gaps) => histogram("gap", &gaps.times),
            Meter::Sums(sums) => sums
                .into_iter()
                .map(|((name, key), value)| measurement(&name, key, vec![("value", value)]))
                .collect(),
            Meter::Load(_, packets) => {
                vec![measurement(
                    "load",
                    None,
                    vec![("packets", as_value(packets))],
                )]
            }
            Meter::Top(by, count, keys) => keys
                .largest(count, TOP_VALUES)
                .into_iter()
                .map(|(key, values)| measurement(by.word(), Some(by.text(&key)), values))
                .collect(),
            Meter::Dns(count, names) => names
                .largest(count, DNS_VALUES)
                .into_iter()
                .map(|(name, values)| measurement("query", Some(name), values))
                .collect(),
            Meter::Sizes(sizes) => sizes
                .ranges()
                .map(|(range, values)| measurement("frame_bytes", Some(range), values))
                .collect(),
            Meter::Cardinality(by, distinct) => {
                vec![measurement(
                    by.word(),
                    None,
                    vec![("distinct", distinct.estimate())],
                )]
            }
        }
    }
}
