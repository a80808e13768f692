// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structures and numbers of `pcap/pcap.h`, which documents them; a test compares both.
#![expect(missing_docs, reason = "pcap/pcap.h has the documentation")]

use std::ffi::{c_char, c_int, c_uint};

pub use ringtap_filter::Instruction;

/// Opaque: a pointer to a handle points to this.
#[repr(C)]
pub struct Pcap {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct Dumper {
    _opaque: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct PacketHeader {
    pub time: libc::timeval,
    pub captured_bytes: u32,
    pub wire_bytes: u32,
}

impl Default for PacketHeader {
    fn default() -> Self {
        PacketHeader {
            time: libc::timeval {
                tv_sec: 0,
                tv_usec: 0,
            },
            captured_bytes: 0,
            wire_bytes: 0,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcapStatistics {
    pub received: c_uint,
    pub dropped: c_uint,
    pub interface_dropped: c_uint,
}

#[repr(C)]
pub struct BpfProgram {
    pub length: c_uint,
    pub instructions: *mut Instruction,
}

/// One device of a list.
#[repr(C)]
pub struct PcapDevice {
    pub next: *mut PcapDevice,
    pub name: *mut c_char,
    pub description: *mut c_char,
    pub addresses: *mut c_char,
    pub flags: u32,
}

pub type Callback = unsafe extern "C" fn(*mut u8, *const PacketHeader, *const u8);

pub const ERRBUF_SIZE: usize = 256;

pub const ERROR: c_int = -1;
pub const ERROR_BREAK: c_int = -2;
pub const ERROR_NOT_ACTIVATED: c_int = -3;
pub const ERROR_ACTIVATED: c_int = -4;
pub const ERROR_NO_SUCH_DEVICE: c_int = -5;
pub const ERROR_RFMON_NOTSUP: c_int = -6;
pub const ERROR_PERM_DENIED: c_int = -8;
pub const ERROR_IFACE_NOT_UP: c_int = -9;
pub const ERROR_PROMISC_PERM_DENIED: c_int = -11;
pub const ERROR_TSTAMP_PRECISION_NOTSUP: c_int = -12;
pub const WARNING_TSTAMP_TYPE_NOTSUP: c_int = 3;

pub const TSTAMP_HOST: c_int = 0;
pub const TSTAMP_ADAPTER_UNSYNCED: c_int = 4;
pub const PRECISION_MICRO: c_int = 0;
pub const PRECISION_NANO: c_int = 1;

pub const DIRECTION_INOUT: c_int = 0;
pub const DIRECTION_IN: c_int = 1;
pub const DIRECTION_OUT: c_int = 2;

pub const DEVICE_UP: u32 = 0x2;
pub const DEVICE_RUNNING: u32 = 0x4;
pub const DEVICE_CONNECTION_NOT_APPLICABLE: u32 = 0x30;
