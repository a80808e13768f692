// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures and numbers of PF_RING 8.9, as far as a program sees them.
#![expect(missing_docs, reason = "include/pfring.h has the names")]

use std::ffi::c_int;

pub const ERROR_GENERIC: c_int = -1;
pub const ERROR_INVALID_ARGUMENT: c_int = -2;
pub const ERROR_NOT_SUPPORTED: c_int = -7;
pub const ERROR_RING_NOT_ENABLED: c_int = -12;

/// The version that `pfring_version` returns: 8.9.0.
pub const VERSION: u32 = 0x0008_0900;
/// Size of the parsed part of a packet's header, which this library leaves 0.
pub const PARSED_BYTES: usize = 141;
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
    pub parsed: [u8; PARSED_BYTES],
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
