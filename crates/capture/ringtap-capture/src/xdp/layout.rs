// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data shared by the program of the sockets and user space; `bpf/xsk.h` is the C view.
//!
//! Invariants
//! - Sizes and offsets equal those in `bpf/xsk.h`; a test compares them with the object's BTF.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Maximum number of receive queues: `RT_XSK_QUEUES`.
pub(crate) const QUEUES: u16 = crate::queues::MOST;

/// Bit of a stamp's time: `RT_XSK_NIC_TIME`.
const NIC_TIME: u64 = 1 << 63;

/// Bytes in front of each packet: `struct rt_stamp`.
pub(crate) const STAMP_BYTES: usize = 24;

/// The program's data about a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CellStamp {
    /// TAI time, or the time of the NIC.
    pub(crate) time_ns: u64,
    /// The NIC stamped the packet.
    pub(crate) is_nic_time: bool,
    /// Packets that the program saw on this queue, including this one.
    pub(crate) offered: u64,
    /// Packets that no rule wanted: the low 32 bits.
    pub(crate) filtered: u32,
    /// VLAN tag that the driver stripped, as on the wire.
    pub(crate) tag: Option<[u8; 4]>,
}

impl CellStamp {
    /// Decodes a stamp.
    #[inline]
    pub(crate) fn from_bytes(bytes: &[u8; STAMP_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let [time, offered, rest] = [words[0], words[1], words[2]];
        let [a, b, c, d, tag @ ..] = rest;
        let time = u64::from_ne_bytes(time);
        CellStamp {
            time_ns: time & !NIC_TIME,
            is_nic_time: time & NIC_TIME != 0,
            offered: u64::from_ne_bytes(offered),
            filtered: u32::from_ne_bytes([a, b, c, d]),
            tag: (tag != [0; 4]).then_some(tag),
        }
    }
}

/// Counters of one receive queue: `struct rt_queue`. Only the program writes them.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
#[repr(C, align(64))]
pub(crate) struct QueueWords {
    pub(crate) offered: AtomicU64,
    pub(crate) filtered: AtomicU64,
    pub(crate) paused: AtomicU64,
    pub(crate) failed: AtomicU64,
    reserved: [AtomicU64; 4],
}

/// Control words of one receive queue, written by user space: `struct rt_queue_control`.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct QueueControl {
    pub(crate) state: AtomicU32,
    reserved: [AtomicU32; 15],
}

/// Values of [`QueueControl::state`]: `RT_XSK_ON`, `RT_XSK_PAUSED`.
pub(crate) mod state {
    pub(crate) const ON: u32 = 1;
    pub(crate) const PAUSED: u32 = 2;
}

/// Settings of the program, fixed before it is loaded: `struct rt_xsk_config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueConfig {
    /// Several CPUs may serve one queue at a time.
    pub(crate) shared: bool,
    /// The program reads the time stamps of the NIC.
    pub(crate) nic_time: bool,
}

impl QueueConfig {
    /// The settings in the format of the program's read-only data.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let words = [self.shared, self.nic_time].map(|on| u32::from(on).to_ne_bytes());
        words.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::c_view::{places, same};

    #[test]
    fn words_lie_where_the_program_has_them() {
        let queue = places!(QueueWords: offered, filtered, paused, failed);
        same("xsk", "rt_queue", size_of::<QueueWords>(), &queue);
        let control = places!(QueueControl: state);
        same(
            "xsk",
            "rt_queue_control",
            size_of::<QueueControl>(),
            &control,
        );
        let config = QueueConfig {
            shared: false,
            nic_time: true,
        };
        assert_eq!(config.to_bytes()[4], 1);
        same(
            "xsk",
            "rt_xsk_config",
            config.to_bytes().len(),
            &[("shared", 0), ("nic_time", 4)],
        );
    }

    #[test]
    fn a_stamp_lies_where_the_program_writes_it() {
        let places = [
            ("time_ns", 0),
            ("offered", 8),
            ("filtered", 16),
            ("tag", 20),
        ];
        same("xsk", "rt_stamp", STAMP_BYTES, &places);
        let mut bytes = [0; STAMP_BYTES];
        bytes[0] = 1;
        bytes[8] = 2;
        bytes[16] = 3;
        let plain = CellStamp::from_bytes(&bytes);
        assert_eq!((plain.time_ns, plain.offered, plain.filtered), (1, 2, 3));
        assert_eq!((plain.tag, plain.is_nic_time), (None, false));
        bytes[7] = 0x80;
        let of_nic = CellStamp::from_bytes(&bytes);
        assert_eq!((of_nic.time_ns, of_nic.is_nic_time), (1, true));
        bytes[20..].copy_from_slice(&[0x81, 0, 0, 5]);
        assert_eq!(CellStamp::from_bytes(&bytes).tag, Some([0x81, 0, 0, 5]));
    }

    #[test]
    fn limits_are_the_headers() {
        let header = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/xsk.h"));
        assert!(header.contains(&format!("#define RT_XSK_QUEUES {QUEUES}\n")));
        assert!(header.contains("#define RT_XSK_NIC_TIME (1ULL << 63)\n"));
        let names = ["RT_XSK_OFF,", "RT_XSK_ON,", "RT_XSK_PAUSED,"];
        let at = names.map(|name| header.find(name).unwrap());
        assert!(at.is_sorted(), "off, on and paused are 0, 1 and 2");
        assert_eq!((state::ON, state::PAUSED), (1, 2));
    }
}
