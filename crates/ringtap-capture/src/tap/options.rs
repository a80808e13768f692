// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a caller asks of a tap.
#![forbid(unsafe_code)]

/// Memory of a pool unless said otherwise, in bytes.
pub const DEFAULT_POOL_BYTES: u64 = 128 << 20;
/// Size of a chunk unless said otherwise, in bytes, if the largest frame of the interface fits.
pub const DEFAULT_CHUNK_SIZE: u32 = 64 << 10;

/// Which packets are captured, seen from the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Those that arrive.
    #[default]
    In,
    /// Those that the host sends.
    Out,
    /// Both.
    InOut,
}

impl Direction {
    pub(super) fn arriving(self) -> bool {
        self != Direction::Out
    }

    pub(super) fn leaving(self) -> bool {
        self != Direction::In
    }
}

/// What becomes of a packet after capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Taking {
    /// It goes its way.
    #[default]
    Pass,
    /// It goes no further: for a port that only monitors. What could not be captured passes.
    Exclusive,
}

/// Where the kernel runs the tap for arriving packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The fastest that shows every packet as the wire had it; each fall-back becomes a note.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Native,
    /// Generic XDP, after the kernel made its own packet buffer.
    Generic,
    /// The traffic control hook (tcx, kernel 6.6).
    Tc,
}

/// What a caller asks of a tap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapOptions {
    /// Name of the network interface.
    pub interface: String,
    /// Receive queues to capture, below 256; empty for all. Leaving packets have none.
    pub queues: Vec<u16>,
    /// Which packets.
    pub direction: Direction,
    /// What becomes of them.
    pub taking: Taking,
    /// Where the kernel runs the tap.
    pub mode: Mode,
    /// Whether to receive packets for other hosts too, as long as the tap lives.
    pub promiscuous: bool,
    /// Most bytes captured of a packet; 0 for as many as a chunk holds.
    pub snap_length: u32,
    /// Memory for chunks in bytes, rounded up; all of it is taken at once.
    pub pool_bytes: u64,
    /// Bytes of a chunk: a power of two from 4 KiB to 512 KiB; 0 for what suits the interface.
    pub chunk_size: u32,
}

impl TapOptions {
    /// All that arrives at `interface`, with the usual sizes.
    pub fn new(interface: impl Into<String>) -> Self {
        TapOptions {
            interface: interface.into(),
            queues: Vec::new(),
            direction: Direction::default(),
            taking: Taking::default(),
            mode: Mode::default(),
            promiscuous: true,
            snap_length: 0,
            pool_bytes: DEFAULT_POOL_BYTES,
            chunk_size: 0,
        }
    }
}
