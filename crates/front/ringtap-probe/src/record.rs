// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records: the results of analyses, as exporters receive them.
//!
//! Times are nanoseconds since 1970, from the packets. The *originator* of a flow sent its first
//! packet that the probe saw.

use std::net::IpAddr;

pub use crate::connection::TcpEnd;
pub use crate::outside::{Outside, Tunnel};
use crate::packet::{ICMP, ICMPV6, SCTP, TCP, UDP};
pub use ringtap_filter::hash::TunnelKind;
use ringtap_packet::CommunityId;

/// One result.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A flow, or a part of one that lasts.
    Flow(Box<FlowRecord>),
    /// A DNS question with its answer.
    Dns(Box<DnsRecord>),
    /// A measurement of an analysis other than `flows`.
    Measurement(Box<Measurement>),
}

/// Packets of both directions with the same addresses, ports, protocol, VLANs and tunnels.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRecord {
    /// Key that all packets of the flow have.
    pub key: FlowKey,
    /// Further VLANs and tunnels that they have in common; absent without.
    pub outside: Option<Box<Outside>>,
    /// Packets from the originator.
    pub forward: DirectionCounts,
    /// Packets to the originator.
    pub backward: DirectionCounts,
    /// Marks of the first packet from the originator, and of the first packet to it.
    pub marks: [DirectionMarks; 2],
    /// Index of the interface that was captured; absent for files.
    pub interface: Option<u32>,
    /// Identifier of the first ICMP query or reply (RFC 792, 4443), for messages that have one.
    pub icmp_identifier: Option<u16>,
    /// Time from the first SYN to the ACK that completes the handshake, in nanoseconds.
    pub handshake_ns: Option<u64>,
    /// Time of the first packet with payload, of either direction.
    pub first_payload_ns: Option<u64>,
    /// Time of the packet after which both ends of a TCP connection had sent FIN or RST.
    pub closed_ns: Option<u64>,
    /// Why the record ends.
    pub end: EndReason,
    /// Number of this record among those of its flow, from 0: a long flow has several.
    pub part: u32,
    /// The probe analysed one flow in this many; 1: all.
    pub sampling: u32,
    /// Seed of [`FlowRecord::community_id`].
    pub community_id_seed: u16,
    /// Texts found in the payload; absent if none was found.
    pub details: Option<Box<Details>>,
}

/// Key that all packets of a flow have; source and destination as in its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Address of the originator.
    pub source: IpAddr,
    /// Address of the responder.
    pub destination: IpAddr,
    /// Port of the originator; for ICMP `type * 256 + code` of its packets.
    /// 0: the protocol has no ports, or the packet is a fragment whose first part was not seen.
    pub source_port: u16,
    /// Port of the responder; for ICMP `type * 256 + code` of the packets that answer, which is the number in
    /// `source_port` for messages without an answer.
    pub destination_port: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Outermost VLAN number; 0 without a tag.
    pub vlan: u16,
}

/// Packets of one direction of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounts {
    /// Number of packets.
    pub packets: u64,
    /// IP headers and payload, in bytes.
    pub bytes: u64,
    /// Whole frames on the wire, in bytes, without the frame check sequence.
    pub frame_bytes: u64,
    /// Payload of TCP, UDP and ICMP, in bytes.
    pub payload_bytes: u64,
    /// Bytes of the TCP stream by its sequence numbers, without retransmitted ones; of UDP and ICMP, `payload_bytes`.
    pub stream_bytes: u64,
    /// Time of the earliest packet; 0 without packets.
    pub first_ns: u64,
    /// Time of the latest packet; 0 without packets.
    pub last_ns: u64,
    /// TCP segments whose sequence numbers were seen before.
    pub retransmissions: Retransmissions,
    /// TCP segments with RST; at most 65,535.
    pub resets: u16,
    /// All TCP flags seen, as in the TCP header.
    pub tcp_flags: u8,
    /// State of the end of the TCP connection that sent these packets.
    pub tcp_end: TcpEnd,
}

/// A number of TCP segments that is exact or not known: counts of the kernel's meter by several processors, at the
/// same time, do not tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retransmissions(u32);

impl Retransmissions {
    const UNKNOWN: u32 = u32::MAX;

    /// The number, if it is exact.
    #[must_use]
    pub fn count(self) -> Option<u32> {
        (self.0 != Self::UNKNOWN).then_some(self.0)
    }

    /// Adds segments; `None` if their number is not known.
    pub(crate) fn add(&mut self, more: Option<u32>) {
        let sum = self
            .count()
            .zip(more)
            .map(|(own, more)| own.saturating_add(more));
        self.0 = sum.map_or(Self::UNKNOWN, |sum| sum.min(Self::UNKNOWN - 1));
    }
}

/// Fields of the first packet of one direction of a flow, beside its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionMarks {
    /// The octet "type of service" of IPv4, or "traffic class" of IPv6: DSCP in the upper six bits, ECN below.
    pub traffic_class: u8,
    /// True if the host of the interface sent the packet, false if it received the packet.
    pub is_sent: bool,
}

/// Texts that analyses of payload found in a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Name of the application's protocol, lower case: `tls`, `dns`, `quic`, `http`.
    pub application: Option<String>,
    /// Application by nDPI: `TLS.YouTube`.
    pub ndpi_application: Option<String>,
    /// Name of the server that the client asked for (SNI, HTTP host).
    pub server_name: Option<String>,
    /// Protocol that the server chose where that is visible, else the one that the client offered first (ALPN).
    pub alpn: Option<String>,
    /// TLS version that the server chose, or the highest that the client offered: `TLSv13`.
    pub tls_version: Option<String>,
    /// Cipher suite that the server chose: `TLS_AES_128_GCM_SHA256`.
    pub tls_cipher: Option<String>,
    /// JA4 fingerprint of the TLS client.
    pub ja4: Option<String>,
    /// Name of the first DNS question.
    pub dns_query: Option<String>,
    /// Type of the first DNS question: `A`, `AAAA`.
    pub dns_query_type: Option<String>,
    /// Response code of the DNS answer: `NOERROR`.
    pub dns_response: Option<String>,
    /// Time from the DNS question to its answer, in nanoseconds.
    pub dns_latency_ns: Option<u64>,
}

/// A DNS question with its answer, as far as both were seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsRecord {
    /// The flow; its source asked.
    pub key: FlowKey,
    /// Time of the question; of the answer if the question was not seen.
    pub time_ns: u64,
    /// Identifier that both messages carry.
    pub id: u16,
    /// Name of the first question, lower case.
    pub query: String,
    /// Type of the first question: `A`.
    pub query_type: String,
    /// Response code: `NOERROR`; absent without an answer.
    pub response: Option<String>,
    /// Addresses and names of the answer, of other records the type; the first 16.
    pub answers: Vec<String>,
    /// Time from question to answer, in nanoseconds, if both were seen.
    pub rtt_ns: Option<u64>,
}

/// Why a flow's record ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// No packet came for the idle time-out.
    Idle,
    /// The flow lasted longer than the active time-out; its next part follows.
    Active,
    /// Both sides sent FIN.
    Fin,
    /// One side sent RST.
    Reset,
    /// The table was full.
    Evicted,
    /// The capture or the analysis ended, or the clock was set back.
    End,
}

/// Named values of one analysis at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Name of the analysis in the configuration.
    pub analysis: String,
    /// Name of the thing measured: `source`, `packet_bytes`, `distinct_sources`.
    pub name: String,
    /// Which one of several, if there are several: an address, a port, a range.
    pub key: Option<String>,
    /// Time of the first packet of the interval.
    pub from_ns: u64,
    /// Time of the end of the interval.
    pub to_ns: u64,
    /// Names, with units, and values.
    pub values: Vec<(&'static str, f64)>,
}

type TextOf = fn(&Details) -> &Option<String>;

impl Details {
    /// All texts: column in Parquet files, name in JSON (Zeek's, where it has one), value.
    pub(crate) const TEXTS: [(&'static str, &'static str, TextOf); 10] = [
        ("application", "service", |own| &own.application),
        ("ndpi_application", "ndpi", |own| &own.ndpi_application),
        ("server_name", "server_name", |own| &own.server_name),
        ("alpn", "next_protocol", |own| &own.alpn),
        ("tls_version", "version", |own| &own.tls_version),
        ("tls_cipher", "cipher", |own| &own.tls_cipher),
        ("ja4", "ja4", |own| &own.ja4),
        ("dns_query", "query", |own| &own.dns_query),
        ("dns_query_type", "qtype_name", |own| &own.dns_query_type),
        ("dns_response", "rcode_name", |own| &own.dns_response),
    ];

    /// Memory of the details in bytes.
    pub(crate) fn memory(&self) -> usize {
        let texts = Details::TEXTS
            .iter()
            .filter_map(|(.., text)| text(self).as_ref());
        size_of::<Details>() + texts.map(String::capacity).sum::<usize>()
    }
}

impl DirectionCounts {
    /// Time of the first packet of both directions.
    pub(crate) fn first_of_both(&self, other: &DirectionCounts) -> u64 {
        match (self.packets, other.packets) {
            (_, 0) => self.first_ns,
            (0, _) => other.first_ns,
            _ => self.first_ns.min(other.first_ns),
        }
    }
}

impl FlowRecord {
    /// Time of the flow's first packet.
    pub fn first_ns(&self) -> u64 {
        self.forward.first_of_both(&self.backward)
    }

    /// Time of the flow's last packet.
    pub fn last_ns(&self) -> u64 {
        self.forward.last_ns.max(self.backward.last_ns)
    }

    /// Time from the first packet to the last one, in nanoseconds; of TCP, to the one that closed the connection,
    /// without later ACKs.
    pub fn duration_ns(&self) -> u64 {
        let end_ns = self.closed_ns.unwrap_or_else(|| self.last_ns());
        end_ns.saturating_sub(self.first_ns())
    }

    /// Packets of both directions.
    pub fn packets(&self) -> u64 {
        self.forward.packets.saturating_add(self.backward.packets)
    }

    /// The flow's Community ID; `None` if its ports are not known.
    pub fn community_id(&self) -> Option<CommunityId> {
        let FlowKey {
            source,
            destination,
            protocol,
            ..
        } = self.key;
        let ports = (self.key.source_port, self.key.destination_port);
        let numbers = match protocol {
            ICMP | ICMPV6 => {
                let [kind, code] = ports.0.to_be_bytes();
                (kind.into(), code.into())
            }
            TCP | UDP | SCTP if ports == (0, 0) => return None,
            _ => ports,
        };
        let seed = self.community_id_seed;
        Some(CommunityId::from_flow(
            protocol,
            source,
            destination,
            numbers,
            seed,
        ))
    }

    /// IP bytes of both directions.
    pub fn bytes(&self) -> u64 {
        self.forward.bytes.saturating_add(self.backward.bytes)
    }
}

impl FlowRecord {
    /// `ingress` or `egress` for the packets from the originator and to it, at the captured interface; absent without
    /// packets, and for files.
    pub(crate) fn directions(&self) -> [Option<&'static str>; 2] {
        let word = |(direction, marks): (&DirectionCounts, DirectionMarks)| {
            let word = if marks.is_sent { "egress" } else { "ingress" };
            (direction.packets > 0 && self.interface.is_some()).then_some(word)
        };
        let [forward, backward] = self.marks;
        [(&self.forward, forward), (&self.backward, backward)].map(word)
    }
}

impl EndReason {
    /// The reason as a word for text and JSON.
    pub fn word(self) -> &'static str {
        match self {
            EndReason::Idle => "idle",
            EndReason::Active => "active",
            EndReason::Fin => "fin",
            EndReason::Reset => "rst",
            EndReason::Evicted => "evicted",
            EndReason::End => "end",
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
