// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes packets of a file to the eBPF program, in a memory-mapped map.
//!
//! Invariants
//! - This process writes nothing while the program runs: one thread does both.
//! - A packet never reaches beyond its cell.

use std::{io, os::fd::AsFd, ptr::NonNull, sync::Arc};

use ringtap_ipc::mapping::{Access, Mapping};
use ringtap_pool::memory::Region;

use super::layout::{CELL_HEADER_BYTES, CELL_STRIDE_BYTES, CELLS, LONGEST_BYTES};

pub(super) struct FileCells {
    cells: Region,
    /// The cell that the program reads next.
    next: usize,
}

impl FileCells {
    /// Maps the map behind `fd`, whose first cell the program has not read yet.
    pub(super) fn new(fd: impl AsFd) -> io::Result<Self> {
        let mapping = Mapping::new(fd, CELLS * CELL_STRIDE_BYTES, Access::ReadWrite)?;
        let cells = Arc::new(mapping).region();
        Ok(Self { cells, next: 0 })
    }

    /// Writes a packet into the next cell.
    ///
    /// The caller runs the program before it writes more than [`CELLS`] packets. A packet that is too
    /// long is cut; the caller prevents that.
    pub(super) fn write(&mut self, packet: &[u8]) {
        let packet = &packet[..packet.len().min(LONGEST_BYTES)];
        let length = u32::try_from(packet.len()).unwrap_or(0).to_ne_bytes();
        let offset = self.next * CELL_STRIDE_BYTES;
        // SAFETY: `next` is below CELLS, so the whole cell lies in the mapping, which lives as
        // long as `self`.
        let cell = unsafe { self.cells.address().add(offset) };
        // SAFETY: the first 4 bytes of the cell, as above; nobody else accesses it meanwhile.
        unsafe { cell.copy_from_nonoverlapping(NonNull::from(&length).cast(), length.len()) };
        // SAFETY: the packet's place in the cell, as above.
        let data = unsafe { cell.add(CELL_HEADER_BYTES) };
        // SAFETY: at most LONGEST_BYTES, which the cell has from there on.
        unsafe { data.copy_from_nonoverlapping(NonNull::from(packet).cast(), packet.len()) };
        self.next = (self.next + 1) % CELLS;
    }
}
