// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet as a line of text, as `tcpdump -q` has it, and as a JSON object with the names of the columns.

use std::fmt::Write as _;
use std::net::IpAddr;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ringtap::{LaneId, Packet};
use ringtap_filter::hash::Link;
use ringtap_filter::protocol_name;
use ringtap_packet::push_address;
use ringtap_pool::format::flag;
use serde::Serialize;

use crate::columns::ip_address;
use crate::{FlowHeaders, LaneLinks, PacketHeaders};

const ARP: u16 = 0x0806;
const SECOND_NS: u64 = 1_000_000_000;

/// Letters of TCP's flags from the lowest bit, as tcpdump writes them.
const FLAGS: [char; 8] = ['F', 'S', 'R', 'P', '.', 'U', 'E', 'W'];

/// A packet to show as a line.
#[derive(Clone, Copy, Debug)]
pub struct LinePacket<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Bytes on the wire; `data` may hold fewer.
    pub wire_length: u32,
    /// The captured bytes.
    pub data: &'a [u8],
    /// Their first header; absent if the link type has no known addresses.
    pub link: Option<Link>,
    /// Where the packet comes from.
    pub origin: PacketOrigin<'a>,
}

/// Where a packet comes from: fields of its object in JSON.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum PacketOrigin<'a> {
    /// A lane of a capture.
    Lane {
        /// The lane, counted over all sources.
        lane: u32,
        /// Receive queue.
        queue: u16,
        /// Flow hash.
        hash: Option<u32>,
        /// The slot's flags.
        flags: u8,
    },
    /// One of several files, whose packets may be of different days: the line has a date, and the file at its end.
    File {
        /// Name of the file.
        file: &'a str,
        /// Name of the interface that captured the packet.
        interface: Option<&'a str>,
    },
}

impl<'a> LinePacket<'a> {
    /// A packet of a lane of a capture with these link types.
    #[must_use]
    pub fn from_lane(lane: LaneId, packet: &Packet<'a>, links: &LaneLinks) -> Self {
        let slot = packet.slot();
        LinePacket {
            time_ns: slot.time_ns,
            wire_length: slot.wire_length,
            data: packet.data,
            link: links.of(lane),
            origin: PacketOrigin::Lane {
                lane: lane.0,
                queue: slot.queue,
                hash: slot.hash(),
                flags: slot.flags,
            },
        }
    }
}

/// Writes packets as lines.
pub struct PacketLine {
    inner: bool,
    community_id: Option<u16>,
    zone: TimeZone,
    /// The last second, its date, and its time of day.
    second: (u64, String, String),
}

/// The fields of a packet that its object in JSON has, with the names of the columns.
#[derive(Serialize)]
struct PacketObject<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    time_ns: u64,
    wire_length: u32,
    captured: usize,
    #[serde(flatten)]
    origin: PacketOrigin<'a>,
    vlan: Option<u16>,
    eth_type: Option<u16>,
    #[serde(flatten)]
    outer: FlowObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    community_id: Option<String>,
    #[serde(flatten)]
    tunnel: Option<TunnelObject<'a>>,
}

#[derive(Serialize)]
struct FlowObject {
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    protocol: Option<u8>,
    src_port: Option<u16>,
    dst_port: Option<u16>,
    tcp_flags: Option<u8>,
    payload_offset: Option<u32>,
}

#[derive(Serialize)]
struct TunnelObject<'a> {
    tunnel: &'a str,
    tunnel_id: Option<u32>,
    inner_src: Option<IpAddr>,
    inner_dst: Option<IpAddr>,
    inner_protocol: Option<u8>,
    inner_src_port: Option<u16>,
    inner_dst_port: Option<u16>,
    inner_tcp_flags: Option<u8>,
    inner_payload_offset: Option<u32>,
}

impl PacketLine {
    /// Lines in local time, with the packet inside a tunnel if `inner`, and with Community IDs if there is a seed.
    #[must_use]
    pub fn new(inner: bool, community_id: Option<u16>) -> Self {
        PacketLine {
            inner,
            community_id,
            zone: TimeZone::system(),
            second: (u64::MAX, String::new(), String::new()),
        }
    }

    fn headers<'a>(&self, packet: &LinePacket<'a>) -> PacketHeaders<'a> {
        PacketHeaders::read(packet.data, packet.link, self.inner, self.community_id)
    }

    /// Appends the line of a packet, with its end.
    pub fn push_text(&mut self, packet: &LinePacket<'_>, to: &mut String) {
        let headers = self.headers(packet);
        let is_dated = matches!(packet.origin, PacketOrigin::File { .. });
        self.push_time(packet.time_ns, is_dated, to);
        if let Some(vlan) = headers.vlan {
            let _infallible = write!(to, " vlan {vlan}");
        }
        match (&headers.outer, headers.eth_type) {
            (Some(flow), _) => push_flow(flow, to),
            (None, Some(ARP)) => to.push_str(" ARP"),
            (None, Some(other)) => {
                let _infallible = write!(to, " ethertype 0x{other:04x}");
            }
            (None, None) => to.push_str(" packet"),
        }
        if let (Some(tunnel), Some(flow)) = (headers.tunnel, &headers.inner) {
            let _infallible = write!(to, " {}", tunnel.kind.word());
            if let Some(identifier) = tunnel.identifier {
                let _infallible = write!(to, " {identifier}");
            }
            push_flow(flow, to);
        }
        let _infallible = write!(to, " length {}", packet.wire_length);
        if let Some(id) = headers.community_id {
            let _infallible = write!(to, " {id}");
        }
        match packet.origin {
            PacketOrigin::File { file, .. } => {
                let _infallible = write!(to, " {file}");
            }
            PacketOrigin::Lane { flags, .. } if flags & flag::MARKED != 0 => {
                to.push_str(" marked");
            }
            PacketOrigin::Lane { .. } => {}
        }
        to.push('\n');
    }

    /// Appends the date if `is_dated`, and the time of day to the microsecond.
    fn push_time(&mut self, time_ns: u64, is_dated: bool, to: &mut String) {
        let (second, rest) = (time_ns / SECOND_NS, time_ns % SECOND_NS);
        if self.second.0 != second {
            let seconds = i64::try_from(second).unwrap_or(i64::MAX);
            let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
            let time = time.to_zoned(self.zone.clone());
            let format = |format| time.strftime(format).to_string();
            self.second = (second, format("%Y-%m-%d"), format("%H:%M:%S"));
        }
        let (_, date, time) = &self.second;
        if is_dated {
            let _infallible = write!(to, "{date} ");
        }
        let _infallible = write!(to, "{time}.{:06}", rest / 1000);
    }

    /// Appends the object of a packet, with the end of the line.
    ///
    /// # Errors
    ///
    /// Never: its values have a form in JSON.
    pub fn push_json(
        &self,
        packet: &LinePacket<'_>,
        to: &mut String,
    ) -> Result<(), serde_json::Error> {
        let headers = self.headers(packet);
        let object = PacketObject {
            kind: "packet",
            time_ns: packet.time_ns,
            wire_length: packet.wire_length,
            captured: packet.data.len(),
            origin: packet.origin,
            vlan: headers.vlan,
            eth_type: headers.eth_type,
            outer: FlowObject::new(headers.outer.as_ref()),
            community_id: headers.community_id.map(|id| id.to_string()),
            tunnel: headers.tunnel.map(|tunnel| {
                let inner = FlowObject::new(headers.inner.as_ref());
                TunnelObject {
                    tunnel: tunnel.kind.word(),
                    tunnel_id: tunnel.identifier,
                    inner_src: inner.src,
                    inner_dst: inner.dst,
                    inner_protocol: inner.protocol,
                    inner_src_port: inner.src_port,
                    inner_dst_port: inner.dst_port,
                    inner_tcp_flags: inner.tcp_flags,
                    inner_payload_offset: inner.payload_offset,
                }
            }),
        };
        to.push_str(&serde_json::to_string(&object)?);
        to.push('\n');
        Ok(())
    }
}

impl FlowObject {
    fn new(flow: Option<&FlowHeaders<'_>>) -> Self {
        let ports = flow.and_then(|flow| flow.ports);
        FlowObject {
            src: flow.map(|flow| ip_address(flow.src)),
            dst: flow.map(|flow| ip_address(flow.dst)),
            protocol: flow.map(|flow| flow.protocol),
            src_port: ports.map(|(from, _)| from),
            dst_port: ports.map(|(_, to)| to),
            tcp_flags: flow.and_then(|flow| flow.tcp_flags),
            payload_offset: flow.and_then(|flow| flow.payload_offset),
        }
    }
}

/// ` IP 10.0.0.1.5000 > 10.0.0.2.80: tcp [S]`.
fn push_flow(flow: &FlowHeaders<'_>, to: &mut String) {
    to.push_str(if flow.src.len() == 16 {
        " IP6 "
    } else {
        " IP "
    });
    push_end(flow.src, flow.ports.map(|(from, _)| from), to);
    to.push_str(" > ");
    push_end(flow.dst, flow.ports.map(|(_, to)| to), to);
    to.push_str(": ");
    match protocol_name(flow.protocol) {
        Some(name) => to.push_str(name),
        None => {
            let _infallible = write!(to, "ip-proto-{}", flow.protocol);
        }
    }
    if let Some(flags) = flow.tcp_flags {
        to.push_str(" [");
        let set = (0..8).filter(|bit| flags & 1 << bit != 0);
        to.extend(set.map(|bit| FLAGS[bit]));
        to.push_str(if flags == 0 { "none]" } else { "]" });
    }
}

fn push_end(address: &[u8], port: Option<u16>, to: &mut String) {
    push_address(ip_address(address), to);
    if let Some(port) = port {
        let _infallible = write!(to, ".{port}");
    }
}
