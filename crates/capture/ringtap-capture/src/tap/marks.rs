// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks of the flows in a tap's table: a packet of a flow without a mark needs no look at the table (`bpf/shunt.h`).
//!
//! Invariants
//! - A mark is set before its flow is added, and cleared after the last flow that shares it was removed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Release},
};
use std::sync::{Arc, Mutex};

use libbpf_rs::{MapHandle, MapType, libbpf_sys};
use ringtap_bpf::map::{self, Access, MapSizes, Mapping};
use ringtap_filter::flow::{FlowId, MARKS};
use ringtap_ipc::mutex::lock;
use ringtap_pool::memory::Words;

const BYTES: usize = MARKS / 8;

/// The marks of one table.
pub(super) struct FlowMarks {
    map: MapHandle,
    words: Words<AtomicU64>,
    /// Flows with each mark; a number that is too large for the type stays, and so does its mark.
    counts: Mutex<Vec<u8>>,
}

impl FlowMarks {
    /// Makes the map of an empty table.
    pub(super) fn new() -> io::Result<Self> {
        let sizes = MapSizes {
            key: 4,
            value: BYTES,
            entries: 1,
        };
        let flags = libbpf_sys::BPF_F_MMAPABLE;
        let map = map::create(MapType::Array, "rt_flow_marks", sizes, flags)?;
        let mapping = Arc::new(Mapping::new(&map, BYTES, Access::ReadWrite)?);
        let words = mapping.words(0, MARKS / 64);
        Ok(FlowMarks {
            map,
            words: words.ok_or(io::ErrorKind::UnexpectedEof)?,
            counts: Mutex::new(vec![0; MARKS]),
        })
    }

    /// The map's descriptor.
    pub(super) fn raw_fd(&self) -> RawFd {
        self.map.as_fd().as_raw_fd()
    }

    /// Sets the mark of a flow.
    pub(super) fn add(&self, key: &FlowId) {
        let mark = key.mark();
        let mut counts = lock(&self.counts);
        counts[mark] = counts[mark].saturating_add(1);
        // The kernel's system call that adds the flow comes after.
        self.words[mark / 64].fetch_or(1 << (mark % 64), Release);
    }

    /// Clears the mark of a flow that was added, unless another flow shares it.
    pub(super) fn remove(&self, key: &FlowId) {
        let mark = key.mark();
        let mut counts = lock(&self.counts);
        if counts[mark] != u8::MAX {
            counts[mark] = counts[mark].saturating_sub(1);
        }
        if counts[mark] == 0 {
            self.words[mark / 64].fetch_and(!(1 << (mark % 64)), AcqRel);
        }
    }
}
