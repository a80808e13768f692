// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures and numbers of PF_RING 8.9, as far as a program sees them.
#![expect(missing_docs, reason = "include/pfring.h has the names")]

use std::ffi::c_int;

pub const ERROR_GENERIC: c_int = -1;
pub const ERROR_INVALID_ARGUMENT: c_int = -2;
pub const ERROR_NO_PACKET: c_int = -3;
pub const ERROR_NOT_SUPPORTED: c_int = -7;
pub const ERROR_RING_NOT_ENABLED: c_int = -12;

/// `PF_RING_LONG_HEADER`.
pub const OPEN_LONG_HEADER: u32 = 1 << 2;
/// `PF_RING_FLOW_OFFLOAD`.
pub const OPEN_FLOW_OFFLOAD: u32 = 1 << 17;
/// `PF_RING_DO_NOT_PARSE`.
pub const OPEN_DO_NOT_PARSE: u32 = 1 << 9;

/// The version that `pfring_version` returns: 8.9.0.
pub const VERSION: u32 = 0x0008_0900;
/// `NO_TUNNEL_ID`.
pub const NO_TUNNEL: u32 = u32::MAX;
/// `MAX_CLUSTER_QUEUES`: the queue of a cluster that the library chooses.
pub const MAX_CLUSTER_QUEUES: u16 = 64;
/// Size of the visible part of a ring.
pub const RING_BYTES: usize = 944;
/// Offset in a ring of the pointer by which programs see that it receives bursts.
pub const RECV_BURST: usize = 624;

/// A packet's header.
#[repr(C, packed)]
#[derive(Clone, Copy, Debug)]
pub struct RingPacketHeader {
    pub seconds: i64,
    pub microseconds: i64,
    pub caplen: u32,
    pub len: u32,
    pub timestamp_ns: u64,
    pub flags: u32,
    /// 1: received by the NIC; 0: sent by the host.
    pub rx_direction: u8,
    pub port_id: u8,
    pub device_id: u16,
    pub if_index: i32,
    pub pkt_hash: u32,
    pub tx: [u8; 16],
    pub process: u32,
    pub parsed: RingParsedPacket,
}

/// The parsed part of a packet's header. Numbers, and IPv4 addresses, are in the host's order.
#[repr(C, packed)]
#[derive(Clone, Copy, Debug)]
pub struct RingParsedPacket {
    pub dmac: [u8; 6],
    pub smac: [u8; 6],
    pub eth_type: u16,
    pub vlan_id: u16,
    pub qinq_vlan_id: u16,
    pub ip_version: u8,
    pub l3_proto: u8,
    pub ip_tos: u8,
    pub ip_src: ParsedAddress,
    pub ip_dst: ParsedAddress,
    pub l4_src_port: u16,
    pub l4_dst_port: u16,
    pub icmp_type: u8,
    pub icmp_code: u8,
    pub tcp_flags: u8,
    pub tcp_padding: [u8; 3],
    pub tcp_seq: u32,
    pub tcp_ack: u32,
    pub tunnel_id: u32,
    /// The packet in the tunnel, which this library does not parse.
    pub tunneled: [u8; 52],
    pub last_matched_rule_id: i32,
    pub eth_offset: i16,
    pub vlan_offset: i16,
    pub l3_offset: i16,
    pub l4_offset: i16,
    pub payload_offset: i16,
}

/// An address: 16 bytes of IPv6, or an IPv4 address as a number in the host's order, and zeros.
pub type ParsedAddress = [u8; 16];

impl RingParsedPacket {
    /// Nothing is parsed.
    pub const NONE: RingParsedPacket = RingParsedPacket {
        dmac: [0; 6],
        smac: [0; 6],
        eth_type: 0,
        vlan_id: 0,
        qinq_vlan_id: 0,
        ip_version: 0,
        l3_proto: 0,
        ip_tos: 0,
        ip_src: [0; 16],
        ip_dst: [0; 16],
        l4_src_port: 0,
        l4_dst_port: 0,
        icmp_type: 0,
        icmp_code: 0,
        tcp_flags: 0,
        tcp_padding: [0; 3],
        tcp_seq: 0,
        tcp_ack: 0,
        tunnel_id: NO_TUNNEL,
        tunneled: [0; 52],
        last_matched_rule_id: 0,
        eth_offset: 0,
        vlan_offset: 0,
        l3_offset: 0,
        l4_offset: 0,
        payload_offset: 0,
    };
}

/// A packet of a burst.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BurstPacket {
    pub data: *const u8,
    pub seconds: i64,
    pub microseconds: i64,
    pub caplen: u16,
    pub len: u16,
    pub flags: u32,
    pub hash: u32,
}

/// The counters of a ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RingStatistics {
    pub recv: u64,
    pub drop: u64,
    pub shunt: u64,
}
