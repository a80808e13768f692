// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells that packets are received into and sent from, without a copy in between.
//!
//! Invariants
//! - Each cell belongs to one port, which gives it to the kernel again when its packet was sent
//!   or dropped.

use std::io;

use ringtap_pool::memory::Region;
use ringtap_shared::memfd::SharedMemory;

use crate::xdp::ring::Piece;

/// The cells of all ports.
pub(super) struct Cells {
    memory: SharedMemory,
    size: u64,
    per_port: u64,
}

impl Cells {
    /// `per_port` cells of `size` bytes for each of `ports` ports.
    pub(super) fn new(size: u32, per_port: u32, ports: usize) -> io::Result<Self> {
        let one = u64::from(size) * u64::from(per_port);
        let all = one * u64::try_from(ports).map_err(io::Error::other)?;
        let bytes = usize::try_from(all).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Cells {
            memory: SharedMemory::create(bytes)?,
            size: size.into(),
            per_port: per_port.into(),
        })
    }

    pub(super) fn region(&self) -> &Region {
        &self.memory.region
    }

    /// The port that an address's cell belongs to, and where the cell begins.
    pub(super) fn home(&self, address: u64) -> (usize, u64) {
        let cell = address / self.size;
        let port = usize::try_from(cell / self.per_port).unwrap_or(usize::MAX);
        (port, cell * self.size)
    }

    /// The addresses of a port's cells.
    pub(super) fn of_port(&self, port: usize) -> impl Iterator<Item = u64> + use<> {
        let (size, count) = (self.size, self.per_port);
        let first = u64::try_from(port).unwrap_or(0) * count;
        (first..first + count).map(move |cell| cell * size)
    }

    /// The bytes of a piece, with `front` bytes before it; `None` if they lie outside its cell.
    ///
    /// # Safety
    ///
    /// The kernel has given the piece, and not got its cell back.
    pub(super) unsafe fn bytes(&mut self, piece: Piece, front: usize) -> Option<&mut [u8]> {
        let length = usize::try_from(piece.length).ok()?;
        let (_, cell) = self.home(piece.address);
        let at = usize::try_from(piece.address).ok()?;
        let begin = at.checked_sub(front)?;
        let end = at.checked_add(length)?;
        let cell = usize::try_from(cell).ok()?;
        let size = usize::try_from(self.size).ok()?;
        let region = &self.memory.region;
        if begin < cell || end > cell + size || end > region.bytes() {
            return None;
        }
        // SAFETY: just checked to lie in the mapping.
        let first = unsafe { region.address().add(begin) };
        // SAFETY: mapped writable as long as `self`, which is borrowed; by the caller's promise
        // the kernel does not write there, and nobody else has the memory.
        Some(unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), end - begin) })
    }
}
