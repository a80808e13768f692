// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of an AF_XDP source, and the sizes that follow from them.
//!
//! Invariants
//! - The region begins at a page boundary; zero-copy cells lie at multiples of their size.

use ringtap_pool::format::{Geometry, MAX_CHUNK_SIZE};
use ringtap_pool::number::to_u32;
use ringtap_pool::writer::{Cell, CellLayout};

use crate::CaptureError;
use ringtap_device::{DeviceSpec, Mode, Queues, StampClock};
use ringtap_net::interface::Interface;

/// Default pool size, in bytes.
pub const DEFAULT_POOL_BYTES: u64 = 128 << 20;
/// Bytes for the stamp: stamp and packet headers share one cache line.
pub const STAMP_ROOM: u32 = 24;
/// Offset of the packet in its cell: `XDP_PACKET_HEADROOM` and the stamp. Reduces the cell's
/// capacity by the same amount.
pub const HEADROOM: u32 = 256 + STAMP_ROOM;
/// Cell sizes in bytes: for the usual MTU, and the largest that AF_XDP takes (a page).
const CELLS: [u32; 2] = [2048, 4096];

/// Options of an AF_XDP source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// Name of the network interface.
    pub interface: String,
    /// Receive queues to capture.
    pub queues: Queues,
    /// Where the kernel runs the program.
    pub mode: Mode,
    /// Whether to try zero-copy.
    pub zero_copy: bool,
    /// Whether the capturing thread polls the driver continuously.
    pub busy_poll: bool,
    /// Clock of the time stamps.
    pub stamps: StampClock,
    /// Whether to receive packets for other hosts too.
    pub promiscuous: bool,
    /// Maximum number of bytes captured of a packet; 0 for as many as a chunk holds.
    pub snap_length: u32,
    /// Memory for chunks, in bytes.
    pub pool_bytes: u64,
    /// Chunk size in bytes; 0 for a size that suits the interface.
    pub chunk_size: u32,
}

impl XdpOptions {
    /// Captures all queues of `interface`, with default sizes.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        XdpOptions {
            interface: interface.into(),
            queues: Queues::All,
            mode: Mode::Auto,
            zero_copy: true,
            busy_poll: false,
            stamps: StampClock::Host,
            promiscuous: true,
            snap_length: 0,
            pool_bytes: DEFAULT_POOL_BYTES,
            chunk_size: 0,
        }
    }

    /// The options in a device's text.
    #[must_use]
    pub fn from_device(device: &DeviceSpec) -> Self {
        let asked = &device.options;
        let usual = Self::new(&device.name);
        XdpOptions {
            queues: device.queues.clone(),
            mode: asked.mode.unwrap_or(usual.mode),
            zero_copy: asked.zero_copy.unwrap_or(usual.zero_copy),
            busy_poll: asked.busy_poll,
            stamps: asked.stamps.unwrap_or_default(),
            promiscuous: asked.promiscuous.unwrap_or(usual.promiscuous),
            snap_length: asked.snap_length.unwrap_or(usual.snap_length),
            pool_bytes: asked.pool.map_or(usual.pool_bytes, |size| size.0),
            chunk_size: asked.chunk.map_or(0, |size| to_u32(size.0)),
            ..usual
        }
    }
}

/// Cell size for frames of `frame_bytes` bytes, and whether frames may need several cells.
#[must_use]
pub fn cell_for(frame_bytes: u32) -> (u32, bool) {
    let room = |cell: &u32| cell - HEADROOM >= frame_bytes;
    let cell = CELLS.into_iter().find(room);
    (cell.unwrap_or(CELLS[1]), cell.is_none())
}

/// Sizes of a pool with cells.
#[derive(Clone, Copy, Debug)]
pub struct XdpPlan {
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
    pub fn new(
        options: &XdpOptions,
        interface: &Interface,
        lanes: u32,
    ) -> Result<Self, CaptureError> {
        let (cell, needs_several) = cell_for(interface.largest_frame_bytes());
        let chunk = match options.chunk_size {
            0 => MAX_CHUNK_SIZE,
            asked => asked,
        };
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
        let chunks = (options.pool_bytes / u64::from(chunk)).max(least);
        let geometry = Geometry::contiguous(chunk, to_u32(chunks), lanes, options.snap_length);
        let mut geometry = geometry.map_err(|reason| CaptureError::Sizes {
            device: interface.name.clone(),
            reason,
        })?;
        let most = if needs_several {
            aligned.first.min(staggered.first).saturating_sub(64 + 32)
        } else {
            cell - HEADROOM
        };
        geometry.snap_length = match options.snap_length {
            0 => most,
            asked => asked.min(most),
        };
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
