// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of an AF_XDP source, and the sizes that follow from them.
//!
//! Invariants
//! - The region begins at a page boundary; zero-copy cells lie at multiples of their size.

use ringtap_pool::format::{Geometry, MAX_CHUNK_SIZE};
use ringtap_pool::number::to_u32;
use ringtap_pool::writer::{Cell, CellLayout};

use crate::{CaptureError, InterfaceOptions};
use ringtap_device::{DeviceSpec, Direction};
use ringtap_net::interface::Interface;

/// Default pool size, in bytes.
pub const DEFAULT_POOL_BYTES: u64 = 128 << 20;
/// Bytes for the stamp: stamp and packet headers share one cache line.
pub(super) const STAMP_ROOM: u32 = 24;
/// Offset of the packet in its cell: `XDP_PACKET_HEADROOM` and the stamp. Reduces the cell's
/// capacity by the same amount.
pub(super) const HEADROOM: u32 = 256 + STAMP_ROOM;
/// Cell sizes in bytes: for the usual MTU, and the largest that AF_XDP takes (a page).
const CELLS: [u32; 2] = [2048, 4096];

/// Options of an AF_XDP source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// The interface and what of it to capture.
    pub on: InterfaceOptions,
    /// Whether to try zero-copy.
    pub zero_copy: bool,
    /// Whether the capturing thread polls the driver continuously.
    pub busy_poll: bool,
}

impl XdpOptions {
    /// Captures all queues of `interface`, with default sizes.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        XdpOptions {
            on: InterfaceOptions::new(interface, Direction::In),
            zero_copy: true,
            busy_poll: false,
        }
    }

    /// The options in a device's text.
    #[must_use]
    pub fn from_device(device: &DeviceSpec) -> Self {
        XdpOptions {
            on: InterfaceOptions::from_device(device, || Direction::In),
            zero_copy: device.options.zero_copy.unwrap_or(true),
            busy_poll: device.options.busy_poll,
        }
    }
}

/// Cell size for frames of `frame_bytes` bytes, and whether frames may need several cells.
#[must_use]
pub(super) fn cell_for(frame_bytes: u32) -> (u32, bool) {
    let room = |cell: &u32| cell - HEADROOM >= frame_bytes;
    let cell = CELLS.into_iter().find(room);
    (cell.unwrap_or(CELLS[1]), cell.is_none())
}

/// Sizes of a pool with cells.
#[derive(Clone, Copy, Debug)]
pub(super) struct XdpPlan {
    pub geometry: Geometry,
    /// Cells for zero-copy drivers.
    pub aligned: CellLayout,
    /// Cells for copy mode, at any offset.
    pub staggered: CellLayout,
    /// Whether frames may need more than one cell.
    pub needs_several: bool,
}

impl XdpPlan {
    /// Sizes for `lanes` queues of this interface.
    pub(super) fn new(
        options: &XdpOptions,
        interface: &Interface,
        lanes: u32,
    ) -> Result<Self, CaptureError> {
        let (cell, needs_several) = cell_for(interface.largest_frame_bytes());
        let (snap_length, asked) = (options.on.snap_length, &options.on.pool);
        let chunk = asked.chunk_bytes.unwrap_or(MAX_CHUNK_SIZE);
        let layout = |cell: Cell| {
            layout(chunk, cell, needs_several).ok_or_else(|| CaptureError::Cells {
                interface: interface.name.clone(),
                chunk_bytes: chunk,
                cell_bytes: cell.size,
            })
        };
        let aligned = layout(Cell::aligned(cell))?;
        let staggered = layout(Cell::staggered(cell))?;
        // With the chunk of the header: a power of two stays one, as the memory of a guest's device must be.
        let least = 2 * u64::from(lanes) + 1;
        let chunks = (asked.bytes.unwrap_or(DEFAULT_POOL_BYTES) / u64::from(chunk)).max(least);
        let geometry = Geometry::contiguous(chunk, to_u32(chunks), lanes, snap_length.unwrap_or(0));
        let mut geometry = geometry.map_err(|reason| CaptureError::Sizes {
            device: interface.name.clone(),
            reason,
        })?;
        let most = if needs_several {
            aligned.first.min(staggered.first).saturating_sub(64 + 32)
        } else {
            cell - HEADROOM
        };
        geometry.snap_length = snap_length.map_or(most, |snap| snap.min(most));
        Ok(XdpPlan {
            geometry,
            aligned,
            staggered,
            needs_several,
        })
    }
}

/// As many cells as possible, with room to copy frames that span several cells or lie unaligned.
fn layout(chunk: u32, cell: Cell, needs_several: bool) -> Option<CellLayout> {
    if needs_several {
        return CellLayout::new(chunk, cell, cell.size, 0);
    }
    CellLayout::new(chunk, cell, 0, cell.size).or_else(|| CellLayout::new(chunk, cell, 0, 0))
}
