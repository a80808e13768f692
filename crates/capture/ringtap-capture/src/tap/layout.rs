// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data shared by the tap's programs and user space besides the pool; `bpf/tap.h` is the C view.
//!
//! Invariants
//! - Sizes and offsets equal those in `bpf/tap.h`; a test compares them with the object's BTF.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

/// Settings fixed before the programs are loaded: `struct rt_config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TapConfig {
    pub(super) segment_mask: u64,
    pub(super) queues: [u64; 4],
    pub(super) all_queues: u32,
    pub(super) exclusive: u32,
    pub(super) snap_length: u32,
    pub(super) chunk_size: u32,
    pub(super) chunk_shift: u32,
    pub(super) segment_shift: u32,
    pub(super) chunk_count: u32,
    pub(super) ring_shift: u32,
    pub(super) forward_to: u32,
    pub(super) largest_frame: u32,
    pub(super) partial: u32,
    pub(super) chunk_packets: u32,
    pub(super) nic_time: u32,
}

impl TapConfig {
    /// The settings in the format of the program's read-only data.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let wide = [self.segment_mask].into_iter().chain(self.queues);
        let narrow = [
            self.all_queues,
            self.exclusive,
            self.snap_length,
            self.chunk_size,
            self.chunk_shift,
            self.segment_shift,
            self.chunk_count,
            self.ring_shift,
            self.forward_to,
            self.largest_frame,
            self.partial,
            self.chunk_packets,
            self.nic_time,
            0,
        ];
        wide.flat_map(u64::to_ne_bytes)
            .chain(narrow.into_iter().flat_map(u32::to_ne_bytes))
            .collect()
    }
}

/// Writer state of one CPU: `struct rt_lane`. Only the program writes it.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
#[repr(C, align(64))]
pub(super) struct LaneWords {
    pub(super) chunk: AtomicU32,
    pub(super) count: AtomicU32,
    pub(super) back: AtomicU32,
    pub(super) busy: AtomicU32,
    pub(super) sequence: AtomicU64,
    pub(super) chunk_sequence: AtomicU64,
    pub(super) offered: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) free_depth: AtomicU32,
    reserved: AtomicU32,
    pub(super) filtered: AtomicU64,
    pub(super) capture_tail: AtomicU32,
    pub(super) recycle_head: AtomicU32,
    pub(super) pool_full: AtomicU64,
    pub(super) nested: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) other_queue: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) shunted: AtomicU64,
    reserved2: AtomicU64,
}

/// Control words of one lane, written by user space: `struct rt_control`.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct ControlWords {
    pub(super) recycle_tail: AtomicU32,
    pub(super) capture_head: AtomicU32,
    pub(super) wake: AtomicU32,
    pub(super) paused: AtomicU32,
    pub(super) tai_minus_utc_ns: AtomicI64,
    pub(super) group_sets: AtomicU32,
    reserved: AtomicU32,
    reserved2: [AtomicU64; 4],
}

/// Forwarding counters of one CPU: `struct rt_forwarded`. Only the programs write them.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct ForwardedWords {
    pub(super) offered: AtomicU64,
    pub(super) filtered: AtomicU64,
    pub(super) redirected: AtomicU64,
    pub(super) to_stack: AtomicU64,
    pub(super) from_stack: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) blocked: AtomicU64,
    pub(super) passed: AtomicU64,
    pub(super) waiting: AtomicU64,
    pub(super) no_verdict_passed: AtomicU64,
    pub(super) no_verdict_dropped: AtomicU64,
    reserved: [AtomicU64; 5],
}

/// What the programs know of a bridge's inline reader: `struct rt_inline`. Written by user space.
#[derive(Debug)]
#[repr(C)]
pub(super) struct InlineWords {
    pub(super) bridge: AtomicU64,
    pub(super) reader: AtomicU64,
    pub(super) state: AtomicU32,
    pub(super) passes: AtomicU32,
    pub(super) mirrors: AtomicU32,
    reserved: AtomicU32,
}

/// What flow rules withheld on one CPU: `struct rt_shunted`. Only the programs write it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct ShuntedWords {
    pub(super) packets: [AtomicU64; 64],
    pub(super) bytes: [AtomicU64; 64],
    pub(super) added: AtomicU64,
    pub(super) untracked: AtomicU64,
    pub(super) lost_ends: AtomicU64,
    scratch: [AtomicU64; 37],
}

#[cfg(test)]
mod tests;
