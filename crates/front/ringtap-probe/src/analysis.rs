// SPDX-License-Identifier: MIT OR Apache-2.0
//! Analyses: what a worker measures on its packets, merged with the other workers' parts.
//!
//! Invariants
//! - A worker's part has bounded memory, whatever the packets contain.

mod cardinality;
mod sizes;
mod top;

use std::net::IpAddr;
use std::time::Duration;

use ringtap_capture::meter::{KeyParts, SIZE_RANGES};

use crate::flows::{FlowOptions, FlowPart};
use crate::packet::{Dissected, PacketKey};
use crate::record::{Measurement, OneWay};
use cardinality::Distinct;
use sizes::SizeCounts;
use top::TopKeys;

/// One analysis as the user asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalysisPlan {
    /// Name in results and commands; unique.
    pub name: String,
    /// What to measure.
    pub kind: AnalysisKind,
    /// Time between results; `None`: one result at the end.
    pub every: Option<Duration>,
    /// Whether the analysis runs.
    pub enabled: bool,
    /// Where the packets are counted.
    pub place: AnalysisPlace,
}

/// Where an analysis counts packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnalysisPlace {
    /// In the workers, which read the packets (Adviser).
    #[default]
    Workers,
    /// In the kernel; no packet goes to user space (Ksensor).
    Kernel,
}

/// What an analysis measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnalysisKind {
    /// Flow records.
    Flows(FlowOptions),
    /// The keys with most bytes.
    Top {
        /// Which part of a packet's key counts.
        by: KeyPart,
        /// Number of keys in a result.
        count: u32,
    },
    /// Packets by the length of their frames.
    Sizes,
    /// Number of distinct keys, estimated.
    Cardinality {
        /// Which part of a packet's key counts.
        by: KeyPart,
    },
}

/// A part of a packet's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Both addresses, in either order.
    Pair,
    /// Protocol and the lower of both ports, mostly the server's.
    Port,
    /// Addresses, ports and protocol, in either order.
    Flow,
}

impl AnalysisKind {
    /// The parts of the key by which the kernel counts packets for this analysis.
    pub(crate) fn key_parts(self) -> KeyParts {
        let (by, vlan) = match self {
            AnalysisKind::Flows(_) => (KeyPart::Flow, true),
            AnalysisKind::Top { by, .. } | AnalysisKind::Cardinality { by } => (by, false),
            AnalysisKind::Sizes => return KeyParts::default(),
        };
        KeyParts {
            source: !matches!(by, KeyPart::Destination | KeyPart::Port),
            destination: !matches!(by, KeyPart::Source | KeyPart::Port),
            ports: matches!(by, KeyPart::Port | KeyPart::Flow),
            vlan,
        }
    }
}

impl KeyPart {
    /// All parts with their words in configurations and results.
    pub const WORDS: [(&'static str, KeyPart); 5] = [
        ("source", KeyPart::Source),
        ("destination", KeyPart::Destination),
        ("pair", KeyPart::Pair),
        ("port", KeyPart::Port),
        ("flow", KeyPart::Flow),
    ];

    /// The part's word.
    pub fn word(self) -> &'static str {
        let found = KeyPart::WORDS.iter().find(|(_, part)| *part == self);
        found.map_or("", |(word, _)| word)
    }

    /// The key without what does not count.
    pub(crate) fn of(self, key: &PacketKey) -> PacketKey {
        let nothing = PacketKey {
            source: [0; 2],
            destination: [0; 2],
            ports: (0, 0),
            vlan: 0,
            protocol: 0,
            ..*key
        };
        let reversed = key.reversed();
        let ordered = match (key.source, key.ports.0) <= (reversed.source, reversed.ports.0) {
            true => *key,
            false => reversed,
        };
        match self {
            KeyPart::Source => PacketKey {
                source: key.source,
                ..nothing
            },
            KeyPart::Destination => PacketKey {
                destination: key.destination,
                ..nothing
            },
            KeyPart::Pair => PacketKey {
                source: key.source.min(key.destination),
                destination: key.source.max(key.destination),
                ..nothing
            },
            KeyPart::Port => PacketKey {
                ports: (key.ports.0.min(key.ports.1), 0),
                protocol: key.protocol,
                is_ipv6: false,
                ..nothing
            },
            KeyPart::Flow => PacketKey { vlan: 0, ..ordered },
        }
    }

    /// A key of this part as text.
    fn text(self, key: &PacketKey) -> String {
        let end = |address: IpAddr, port: u16| match address {
            IpAddr::V4(address) => format!("{address}:{port}"),
            IpAddr::V6(address) => format!("[{address}]:{port}"),
        };
        let (source, destination) = (key.address(key.source), key.address(key.destination));
        match self {
            KeyPart::Source => source.to_string(),
            KeyPart::Destination => destination.to_string(),
            KeyPart::Pair => format!("{source} {destination}"),
            KeyPart::Port => format!("{}/{}", key.ports.0, protocol_word(key.protocol)),
            KeyPart::Flow => format!(
                "{} {} {}",
                protocol_word(key.protocol),
                end(source, key.ports.0),
                end(destination, key.ports.1)
            ),
        }
    }
}

/// Name of an IP protocol, as Zeek has it; the number for those without one.
pub fn protocol_word(protocol: u8) -> String {
    match protocol {
        1 | 58 => "icmp".into(),
        6 => "tcp".into(),
        17 => "udp".into(),
        132 => "sctp".into(),
        other => other.to_string(),
    }
}

/// A worker's part of an analysis with results at intervals.
#[derive(Debug)]
pub(crate) enum Meter {
    Top(KeyPart, u32, TopKeys),
    Sizes(SizeCounts),
    Cardinality(KeyPart, Distinct),
}

impl Meter {
    /// An empty part; `None` for flows, which have no results at intervals.
    pub(crate) fn new(kind: AnalysisKind) -> Option<Self> {
        Some(match kind {
            AnalysisKind::Flows(_) => return None,
            AnalysisKind::Top { by, count } => Meter::Top(by, count, TopKeys::new(count)),
            AnalysisKind::Sizes => Meter::Sizes(SizeCounts::default()),
            AnalysisKind::Cardinality { by } => Meter::Cardinality(by, Distinct::new()),
        })
    }

    /// Counts one packet.
    #[inline]
    pub(crate) fn packet(&mut self, packet: &Dissected) {
        match self {
            Meter::Top(by, _, keys) => keys.add(by.of(&packet.key), packet.ip_bytes.into(), 1),
            Meter::Sizes(sizes) => sizes.add(packet.frame_bytes),
            Meter::Cardinality(by, distinct) => distinct.add(&by.of(&packet.key)),
        }
    }

    /// Counts packets of one direction of a flow. Sizes are counted by [`Meter::sizes`].
    pub(crate) fn part(&mut self, part: &FlowPart) {
        match self {
            Meter::Top(by, _, keys) => {
                let OneWay { bytes, packets, .. } = part.counts;
                keys.add(by.of(&part.key), bytes, packets);
            }
            Meter::Sizes(_) => {}
            Meter::Cardinality(by, distinct) => distinct.add(&by.of(&part.key)),
        }
    }

    /// Adds packets and bytes of each range of sizes.
    pub(crate) fn sizes(&mut self, ranges: &[(u64, u64); SIZE_RANGES]) {
        if let Meter::Sizes(sizes) = self {
            sizes.add_all(ranges);
        }
    }

    /// Adds another worker's part of the same analysis; nothing if the analysis changed meanwhile.
    pub(crate) fn merge(&mut self, other: Meter) {
        match (self, other) {
            (Meter::Top(_, _, keys), Meter::Top(_, _, more)) => keys.merge(more),
            (Meter::Sizes(sizes), Meter::Sizes(more)) => sizes.merge(&more),
            (Meter::Cardinality(_, distinct), Meter::Cardinality(_, more)) => distinct.merge(&more),
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
        match self {
            Meter::Top(by, count, keys) => keys
                .largest(count)
                .into_iter()
                .map(|(key, values)| measurement(by.word(), Some(by.text(&key)), values))
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

/// A count as a value of a record.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts stay below 2^53 in any interval"
)]
pub(crate) fn as_value(count: u64) -> f64 {
    count as f64
}
