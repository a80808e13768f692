// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data shared by the meter's programs and user space; `bpf/meter.h` is the C view.
//!
//! Invariants
//! - Sizes and offsets equal those in `bpf/meter.h`; a test compares them with the object's BTF.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Words of a key.
pub(super) const KEY_WORDS: usize = 10;
/// Words of a key's further part.
pub(super) const OUTSIDE_WORDS: usize = 12;
/// Words of what the programs find in a packet's headers.
const FOUND_WORDS: usize = 19;
/// Ranges of frame lengths, the last for packets that are not IP.
const SIZE_RANGES: usize = 8;
/// Bytes of a packet, and as many behind them.
const LANE_BYTES: usize = 512;

/// Settings fixed before the programs are loaded: `struct rt_meter_config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MeterConfig {
    pub(super) exclusive: u32,
    pub(super) parts: u32,
    pub(super) inner: u32,
    pub(super) flows: u32,
    pub(super) buckets: u32,
    pub(super) signal_at: u32,
    pub(super) loops: u32,
    pub(super) keys: [u64; KEY_WORDS + OUTSIDE_WORDS + 1],
}

impl MeterConfig {
    /// The settings in the format of the programs' read-only data.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let narrow = [
            self.exclusive,
            self.parts,
            self.inner,
            self.flows,
            self.buckets,
            self.signal_at,
            self.loops,
            0,
        ];
        let narrow = narrow.into_iter().flat_map(u32::to_ne_bytes);
        narrow
            .chain(self.keys.into_iter().flat_map(u64::to_ne_bytes))
            .collect()
    }
}

/// Counts of one direction of a flow: `struct rt_meter_flow`. Only the programs write them.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct FlowWords {
    pub(super) key: [AtomicU32; KEY_WORDS],
    pub(super) next: AtomicU32,
    pub(super) flags: AtomicU32,
    pub(super) packets: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) last_ns: AtomicU64,
    pub(super) first_ns: AtomicU64,
    pub(super) frame_bytes: AtomicU64,
    pub(super) payload_bytes: AtomicU64,
    pub(super) first_payload_ns: AtomicU64,
    pub(super) first_ack_ns: AtomicU64,
    pub(super) expected: AtomicU32,
    pub(super) first_end: AtomicU32,
    pub(super) retransmissions: AtomicU32,
    pub(super) resets: AtomicU32,
    pub(super) outside: [AtomicU32; OUTSIDE_WORDS],
}

/// Packets and bytes.
#[derive(Debug)]
#[repr(C)]
pub(super) struct SizeWords {
    pub(super) packets: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// State and counters of one CPU: `struct rt_meter_lane`.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct MeterLaneWords {
    busy: AtomicU32,
    reserved: AtomicU32,
    pub(super) count: [AtomicU32; 2],
    pub(super) seen: AtomicU64,
    pub(super) analysed: AtomicU64,
    pub(super) full: AtomicU64,
    pub(super) nested: AtomicU64,
    pub(super) chained: AtomicU64,
    pub(super) sizes: [SizeWords; SIZE_RANGES],
    outside: [AtomicU32; OUTSIDE_WORDS],
    outer: [AtomicU32; FOUND_WORDS],
    bytes: [AtomicU64; LANE_BYTES / 8],
}

/// `struct rt_meter_control`: the half that packets count in, and a reserved word. Only user space writes it.
pub(super) type MeterControl = [AtomicU32; 2];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::c_view::{c_struct, places, same};

    #[test]
    fn words_lie_where_the_programs_have_them() {
        let flow = places!(FlowWords: key, next, flags, packets, bytes, last_ns, first_ns, frame_bytes,
            payload_bytes, first_payload_ns, first_ack_ns, expected, first_end, retransmissions, resets,
            outside);
        same("meter", "rt_meter_flow", size_of::<FlowWords>(), &flow);
        let lane = places!(MeterLaneWords: busy, count, seen, analysed, full, nested, chained, sizes,
            outside, outer, bytes);
        same("meter", "rt_meter_lane", size_of::<MeterLaneWords>(), &lane);
        let control = size_of::<MeterControl>();
        same("meter", "rt_meter_control", control, &[("half", 0)]);
        same(
            "meter",
            "rt_meter_buckets",
            size_of::<[AtomicU32; 2]>(),
            &[("first", 0)],
        );
    }

    #[test]
    fn settings_lie_where_the_programs_have_them() {
        let numbered = MeterConfig {
            exclusive: 1,
            parts: 2,
            inner: 3,
            flows: 4,
            buckets: 5,
            signal_at: 6,
            loops: 7,
            keys: std::array::from_fn(|at| 8 + at as u64),
        };
        let bytes = numbered.to_bytes();
        let (size, members) = c_struct("meter", "rt_meter_config");
        assert_eq!(bytes.len(), size);
        let names = [
            "exclusive",
            "parts",
            "inner",
            "flows",
            "buckets",
            "signal_at",
            "loops",
            "keys",
        ];
        for (value, name) in (1..).zip(names) {
            assert_eq!(bytes[members[name]], value, "{name}");
        }
        assert!(!ringtap_bpf::conflict::meter_only_looks(&bytes));
    }
}
