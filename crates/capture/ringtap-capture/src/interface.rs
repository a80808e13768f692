// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of every source that captures an interface.

use ringtap_device::{DeviceSpec, Direction, Mode, Queues, StampClock};

use crate::monitor::AtRemoval;
use crate::shape::PoolAsked;

/// Options that `tap`, `xdp` and `packet` share; a source without such an option ignores its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceOptions {
    /// Name of the network interface.
    pub interface: String,
    /// Receive queues to capture. Outgoing packets have no queue.
    pub queues: Queues,
    /// Captured directions.
    pub direction: Direction,
    /// Where the kernel runs the source's program.
    pub mode: Mode,
    /// Whether to receive packets for other hosts too, while the source exists.
    pub promiscuous: bool,
    /// Maximum number of bytes captured of a packet; as many as a chunk holds if absent.
    pub snap_length: Option<u32>,
    /// The pool and its chunks.
    pub pool: PoolAsked,
    /// Clock of the time stamps; those of the NIC are for received packets only.
    pub stamps: StampClock,
    /// Reaction to the removal of the interface.
    pub at_removal: AtRemoval,
    /// Messages for the user about these options; the source's notes begin with them.
    pub notes: Vec<String>,
}

impl InterfaceOptions {
    /// Captures this direction of an interface, with default sizes.
    #[must_use]
    pub fn new(interface: impl Into<String>, direction: Direction) -> Self {
        Self {
            interface: interface.into(),
            queues: Queues::All,
            direction,
            mode: Mode::Auto,
            promiscuous: true,
            snap_length: None,
            pool: PoolAsked::default(),
            stamps: StampClock::Host,
            at_removal: AtRemoval::End,
            notes: Vec::new(),
        }
    }

    /// The options in a device's text; `usual` gives the direction if nothing determines it.
    pub(crate) fn from_device(device: &DeviceSpec, usual: impl FnOnce() -> Direction) -> Self {
        let asked = &device.options;
        let stamps = asked.stamps.unwrap_or_default();
        let by_clock = (stamps == StampClock::Nic).then_some(Direction::In);
        let direction = asked.direction.or(by_clock).unwrap_or_else(usual);
        Self {
            queues: device.queues.clone(),
            mode: asked.mode.unwrap_or_default(),
            promiscuous: asked.promiscuous.unwrap_or(true),
            snap_length: asked.snap_length,
            pool: PoolAsked::from_options(asked),
            stamps,
            at_removal: AtRemoval::from_options(asked),
            ..Self::new(&device.name, direction)
        }
    }
}
