// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structures and numbers of `include/ringtap.h`, which documents them; a test compares both.
//!
//! Invariants
//! - With the same soname, a structure without a `size` never changes, and one with a `size` only
//!   grows.
#![expect(missing_docs, reason = "include/ringtap.h has the documentation")]

use std::ffi::{c_char, c_int};

pub use ringtap_client::CursorPacket;
use ringtap_pool::counters::Counters;

pub const OK: c_int = 0;
pub const END: c_int = -1;
pub const ERROR_ARGUMENT: c_int = -2;
pub const ERROR_HANDLE: c_int = -3;
pub const ERROR_BUSY: c_int = -4;
pub const ERROR_NO_HUB: c_int = -5;
pub const ERROR_REFUSED: c_int = -6;
pub const ERROR_FILTER: c_int = -7;
pub const ERROR_HUB_LEFT: c_int = -8;
pub const ERROR_CORRUPT: c_int = -9;
pub const ERROR_SYSTEM: c_int = -10;
pub const ERROR_INTERNAL: c_int = -11;

pub const OPEN_PRIVATE: u32 = 1;

pub const IGNORE: u32 = 0;
pub const CUTOFF: u32 = 1;
pub const SAMPLE: u32 = 2;
pub const MIRROR: u32 = 3;
pub const FORWARD: u32 = 4;

pub const FLOW_ENDED: u32 = 0;
pub const FLOW_IDLE: u32 = 1;
pub const FLOW_RESTARTED: u32 = 2;
pub const FLOW_EVICTED: u32 = 3;
pub const FLOW_REMOVED: u32 = 4;

pub const PASS: c_int = 0;
pub const DROP: c_int = 1;

pub const FOR_GOOD: c_int = 0;
pub const FOR_TIME: c_int = 1;
pub const UNTIL_IDLE: c_int = 2;

/// Opaque: a handle is a number in the form of a pointer to this.
#[repr(C)]
pub struct CHandle {
    _opaque: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct COptions {
    pub size: usize,
    pub name: *const c_char,
    pub filter: *const c_char,
    pub credit_chunks: u32,
    pub watermark_packets: u32,
    pub time_limit_ms: u32,
    pub flags: u32,
    pub marks: *const c_char,
    pub order_ms: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CFlowRule {
    pub size: usize,
    pub flow: *const c_char,
    pub action: u32,
    pub reserved: u32,
    pub packets: u64,
    pub bytes: u64,
    pub lasts_ms: u64,
    pub group: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CFlowDirection {
    pub packets: u64,
    pub bytes: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    pub tcp_flags: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CFlowEvent {
    pub size: usize,
    pub flow: *const c_char,
    pub why: u32,
    pub counted: u32,
    pub lost_before: u64,
    pub directions: [CFlowDirection; 2],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CSource {
    pub size: usize,
    pub device: *const c_char,
    pub offered_from: *const c_char,
    pub link_type: u32,
    pub snap_length_bytes: u32,
    pub first_lane: u32,
    pub lanes: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CLastGap {
    pub size: usize,
    pub sequence: u64,
    pub duration_ns: u64,
    pub after: u64,
    pub lane: u32,
    pub number: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CStatistics {
    pub size: usize,
    pub counters: Counters,
    pub balanced: u32,
    pub ended: u32,
}
