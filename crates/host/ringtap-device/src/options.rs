// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types of the options after the question mark.

use super::{
    rate::Speed,
    shaping::{ChunkOptions, SimAsked},
    size::Size,
};

/// Hook at which the kernel runs the program for received packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The fastest hook that shows each packet as on the wire; each fall-back becomes a note.
    #[default]
    Auto,
    /// Native XDP, in the driver, or an error.
    Native,
    /// Generic XDP, after the kernel allocated a packet buffer: slower, works everywhere.
    Generic,
    /// The traffic control hook (tcx, kernel 6.6).
    Tc,
}

/// Direction of the captured packets, seen from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Received by the interface.
    In,
    /// Sent by this host.
    Out,
    /// Both.
    InOut,
}

impl Direction {
    /// Whether received packets are wanted.
    #[must_use]
    pub fn arriving(self) -> bool {
        self != Direction::Out
    }

    /// Whether packets that this host sends are wanted.
    #[must_use]
    pub fn leaving(self) -> bool {
        self != Direction::In
    }
}

/// Clock of the packets' time stamps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum StampClock {
    /// The kernel's.
    #[default]
    Host,
    /// The NIC's own, as it is: `adapter_unsynced` of libpcap.
    Nic,
}

/// The options of a device; `None` leaves the choice to the source.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// Captured packets do not go on to the host.
    pub exclusive: bool,
    /// How the tap attaches.
    pub mode: Option<Mode>,
    /// Direction of the packets.
    pub direction: Option<Direction>,
    /// Clock of the time stamps.
    pub stamps: Option<StampClock>,
    /// Whether to receive packets for other hosts.
    pub promiscuous: Option<bool>,
    /// Whether to wait for an interface of the same name when the interface is removed.
    pub wait: bool,
    /// Bytes to keep of each packet, 1 to 262,144.
    pub snap_length: Option<u32>,
    /// Size of the pool.
    pub pool: Option<Size>,
    /// Size of a chunk: a power of two, 4 KiB to 512 KiB.
    pub chunk: Option<Size>,
    /// Whether AF_XDP may leave packets where the NIC put them.
    pub zero_copy: Option<bool>,
    /// Whether AF_XDP asks the driver for packets all the time.
    pub busy_poll: bool,
    /// How fast a file is read.
    pub speed: Option<Speed>,
    /// Path of the hub's socket.
    pub socket: Option<String>,
    /// The hub copies packets into a pool of this reader only.
    pub private: bool,
    /// Number of waiting packets at which the hub wakes the reader.
    pub watermark: Option<u32>,
    /// Milliseconds after which the hub wakes the reader with fewer packets.
    pub limit_ms: Option<u32>,
    /// Microseconds that the reader pauses after it has caught up, while packets come fast.
    pub distance_us: Option<u32>,
    /// Number of chunks, and of packets in each.
    pub chunks: ChunkOptions,
    /// The simulated NIC.
    pub sim: SimAsked,
}
