// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generated packets as templates: constant headers and payload, plus the varying fields.
//!
//! The eBPF program writes the same bytes; this version serves AF_PACKET and is the tests' oracle.
//!
//! Invariants
//! - A shape's frame has zeros in the varying fields (source address, source port, checksums,
//!   stamp). Its sums cover the frame in this state; varying values are added.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    num::NonZeroU64,
};

use etherparse::{
    IpHeaders, Ipv4Header, Ipv6Header, PacketBuilder, PacketBuilderStep, TcpHeader, VlanId,
};

use crate::{
    address::MacAddress,
    checksum,
    stamp::{STAMP_BYTES, Stamp},
    traffic::WIRE_OVERHEAD_BYTES,
    traffic::{FCS_BYTES, Traffic, TrafficError, TransportProtocol},
};

const TTL: u8 = 64;

/// Packets of one size.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Headers and payload; zeros in the varying fields.
    pub frame: Vec<u8>,
    /// Sum of the IPv4 header.
    pub ip_sum: u32,
    /// Sum of pseudo header, UDP or TCP header and payload.
    pub transport_sum: u32,
}

/// Offsets of the varying fields in the frame.
#[derive(Clone, Copy, Debug)]
pub struct Offsets {
    /// The IPv4 header's checksum; IPv6 has none.
    pub ip_sum: Option<usize>,
    /// The low 32 bits of the source address.
    pub address: usize,
    /// The source port.
    pub port: usize,
    /// The checksum of the UDP or TCP header.
    pub transport_sum: usize,
    /// The stamp, if packets carry one.
    pub stamp: Option<usize>,
    /// Start of the payload.
    pub payload: usize,
}

/// Templates and parameters for writing packet number `n`.
///
/// # Examples
///
/// ```
/// use ringtap_packet::{MacAddress, Plan, Traffic};
///
/// let plan = Plan::new(&Traffic::default(), MacAddress([2, 0, 0, 0, 0, 1]))?;
/// let mut packet = Vec::new();
/// plan.write(0, 0, &mut packet);
/// // Without the 4 bytes that the device appends.
/// assert_eq!(packet.len(), 60);
/// # Ok::<(), ringtap_packet::TrafficError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    /// One shape for each size.
    pub shapes: Vec<Shape>,
    /// Indexes into `shapes`, in the order in which sizes repeat.
    pub order: Vec<u8>,
    /// Offsets of the varying fields.
    pub at: Offsets,
    /// Number of flows.
    pub flows: u32,
    /// Low 32 bits of the source address of flow 0.
    pub address: u32,
    /// Source port of flow 0.
    pub port: u16,
    /// UDP if set, otherwise TCP.
    pub udp: bool,
}

impl Plan {
    /// Lays out the packets of `traffic`.
    pub fn new(traffic: &Traffic, own_mac: MacAddress) -> Result<Self, TrafficError> {
        traffic.check()?;
        let at = offsets(traffic);
        let mut sizes = Vec::new();
        let mut order = Vec::new();
        for size in traffic.cycle() {
            let known = sizes.iter().position(|one| *one == size);
            let index = known.unwrap_or_else(|| {
                sizes.push(size);
                sizes.len() - 1
            });
            order.push(u8::try_from(index).unwrap_or(0));
        }
        let shape = |size: &u32| shape(traffic, own_mac, (size - FCS_BYTES) as usize, &at);
        Ok(Self {
            shapes: sizes.iter().map(shape).collect::<Result<_, _>>()?,
            order,
            at,
            flows: traffic.flows,
            address: low_bits(traffic.source),
            port: traffic.source_port,
            udp: traffic.transport == TransportProtocol::Udp,
        })
    }

    /// Appends packet number `sequence`, created at `time_ns`; returns its length.
    pub fn write(&self, sequence: u64, time_ns: u64, out: &mut Vec<u8>) -> usize {
        let flow = u32::try_from(sequence % u64::from(self.flows)).unwrap_or(0);
        self.write_of_flow(flow, sequence, time_ns, out)
    }

    /// Like [`Plan::write`], for a packet of a given flow.
    pub fn write_of_flow(
        &self,
        flow: u32,
        sequence: u64,
        time_ns: u64,
        out: &mut Vec<u8>,
    ) -> usize {
        let start = out.len();
        let shape = self.shape_of(sequence);
        out.extend_from_slice(&shape.frame);
        let frame = &mut out[start..];
        let address = self.address.wrapping_add(flow).to_be_bytes();
        let port = self.port_of(flow).to_be_bytes();
        let mut varying = checksum::sum(&address);
        put(frame, self.at.address, &address);
        put(frame, self.at.port, &port);
        if let Some(at) = self.at.ip_sum {
            let field = checksum::finish(shape.ip_sum + varying);
            put(frame, at, &field.to_be_bytes());
        }
        varying += checksum::sum(&port);
        if let Some(at) = self.at.stamp {
            let stamp = Stamp { sequence, time_ns }.to_bytes();
            varying += checksum::sum(&stamp);
            put(frame, at, &stamp);
        }
        let field = match checksum::finish(shape.transport_sum + varying) {
            0 if self.udp => 0xffff, // 0 would say that there is no checksum
            field => field,
        };
        put(frame, self.at.transport_sum, &field.to_be_bytes());
        frame.len()
    }

    /// Number of source ports from the first one, before they repeat.
    pub fn port_span(&self) -> u32 {
        0x1_0000 - u32::from(self.port)
    }

    fn port_of(&self, flow: u32) -> u16 {
        self.port + u16::try_from(flow % self.port_span()).unwrap_or(0)
    }

    fn shape_of(&self, sequence: u64) -> &Shape {
        let cycle = self.order.len() as u64;
        let position = usize::try_from(sequence % cycle).unwrap_or(0);
        &self.shapes[usize::from(self.order[position])]
    }

    /// Frame lengths in bytes, in the order in which sizes repeat.
    pub fn lengths(&self) -> Vec<usize> {
        let shapes = self.order.iter().map(|at| &self.shapes[usize::from(*at)]);
        shapes.map(|shape| shape.frame.len()).collect()
    }

    /// Length of the longest frame in bytes.
    pub fn longest(&self) -> usize {
        let lengths = self.shapes.iter().map(|shape| shape.frame.len());
        lengths.max().unwrap_or(0)
    }

    /// Number of packets after which sizes repeat, and their bits on the wire.
    pub fn cycle(&self) -> (NonZeroU64, NonZeroU64) {
        let frames = (0..self.order.len() as u64).map(|n| self.shape_of(n).frame.len() as u64);
        let bits = frames.map(|length| (length + WIRE_OVERHEAD_BYTES) * 8);
        let nonzero = |number| NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN);
        (nonzero(self.order.len() as u64), nonzero(bits.sum()))
    }
}

fn put(frame: &mut [u8], at: usize, bytes: &[u8]) {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
}

fn low_bits(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => {
            let [.., a, b, c, d] = address.octets();
            u32::from_be_bytes([a, b, c, d])
        }
    }
}

pub(crate) fn offsets(traffic: &Traffic) -> Offsets {
    let ip = 14 + 4 * traffic.vlans.len();
    let (ip_sum, address, transport) = match traffic.source {
        IpAddr::V4(_) => (Some(ip + 10), ip + 12, ip + 20),
        IpAddr::V6(_) => (None, ip + 8 + 12, ip + 40),
    };
    let (sum, payload) = match traffic.transport {
        TransportProtocol::Udp => (transport + 6, transport + 8),
        TransportProtocol::Tcp => (transport + 16, transport + 20),
    };
    Offsets {
        ip_sum,
        address,
        port: transport,
        transport_sum: sum,
        stamp: traffic.stamp.then_some(payload),
        payload,
    }
}

/// Headers from Ethernet to IP, with zeros in the low bits of the source address; etherparse writes
/// lengths and checksums.
fn headers(
    traffic: &Traffic,
    own_mac: MacAddress,
) -> Result<PacketBuilderStep<IpHeaders>, TrafficError> {
    let ip = match (traffic.source, traffic.destination) {
        (IpAddr::V4(_), IpAddr::V4(to)) => {
            let header = Ipv4Header {
                time_to_live: TTL,
                dont_fragment: true,
                source: Ipv4Addr::UNSPECIFIED.octets(),
                destination: to.octets(),
                ..Ipv4Header::default()
            };
            IpHeaders::Ipv4(header, Default::default())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = Ipv6Header {
                hop_limit: TTL,
                source: Ipv6Addr::from_bits(from.to_bits() >> 32 << 32).octets(),
                destination: to.octets(),
                ..Ipv6Header::default()
            };
            IpHeaders::Ipv6(header, Default::default())
        }
        (from, to) => return Err(TrafficError::Families { from, to }),
    };
    let from = traffic.source_mac.unwrap_or(own_mac);
    let ethernet = PacketBuilder::ethernet2(from.0, traffic.destination_mac.0);
    let vlan = |id| VlanId::try_new(id).map_err(|_| TrafficError::Vlan { id });
    Ok(match *traffic.vlans {
        [] => ethernet.ip(ip),
        [only] => ethernet.single_vlan(vlan(only)?).ip(ip),
        [outer, inner] => ethernet.double_vlan(vlan(outer)?, vlan(inner)?).ip(ip),
        _ => {
            let count = traffic.vlans.len();
            return Err(TrafficError::VlanCount { count });
        }
    })
}

fn shape(
    traffic: &Traffic,
    own_mac: MacAddress,
    length: usize,
    at: &Offsets,
) -> Result<Shape, TrafficError> {
    let headers = headers(traffic, own_mac)?;
    let places = 0..length - at.payload;
    let mut payload: Vec<_> = places.map(|place| place.to_le_bytes()[0]).collect();
    if at.stamp.is_some() {
        payload[..STAMP_BYTES].fill(0);
    }
    let mut frame = Vec::with_capacity(length);
    match traffic.transport {
        TransportProtocol::Udp => {
            let headers = headers.udp(0, traffic.destination_port);
            headers.write(&mut frame, &payload)
        }
        TransportProtocol::Tcp => {
            let headers = headers.tcp_header(TcpHeader {
                ack: true,
                acknowledgment_number: 1,
                ..TcpHeader::new(0, traffic.destination_port, 1, 0xffff)
            });
            headers.write(&mut frame, &payload)
        }
    }
    // Only a length that exceeds IP's limit can fail here.
    .map_err(|_| TrafficError::TooLarge {
        size_bytes: traffic.largest_size_bytes(),
    })?;
    // A checksum is the complement of the sum; the field itself becomes zero.
    let mut take_sum = |at: usize| {
        let field = [frame[at], frame[at + 1]];
        put(&mut frame, at, &[0; 2]);
        u32::from(!u16::from_be_bytes(field))
    };
    Ok(Shape {
        ip_sum: at.ip_sum.map_or(0, &mut take_sum),
        transport_sum: take_sum(at.transport_sum),
        frame,
    })
}

#[cfg(test)]
mod tests;
