// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a tap.

use ringtap_device::{ChunkOptions, DeviceSpec, Direction, Mode, Queues, StampClock};
use ringtap_net::interface::Interface;
use ringtap_net::kernel::{self, Feature};
use ringtap_pool::number::to_u32;

use super::forward::Forward;
use crate::monitor::AtRemoval;
use crate::{CaptureError, queues};

/// Default pool size, in bytes.
pub const DEFAULT_POOL_BYTES: u64 = 128 << 20;
/// Default chunk size, in bytes, if the largest frame of the interface fits.
pub const DEFAULT_CHUNK_SIZE: u32 = 64 << 10;

/// What happens to a packet after capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Taking {
    /// The packet continues to the network stack.
    #[default]
    Pass,
    /// The packet is dropped, for ports that only monitor. Packets that are not captured continue.
    Exclusive,
}

/// Options of a tap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapOptions {
    /// Name of the network interface.
    pub interface: String,
    /// Receive queues to capture, below 256; empty for all. Outgoing packets have no queue.
    pub queues: Vec<u16>,
    /// Captured directions.
    pub direction: Direction,
    /// What happens to packets after capture.
    pub taking: Taking,
    /// Where the kernel runs the tap.
    pub mode: Mode,
    /// Whether to receive packets for other hosts too, while the tap exists.
    pub promiscuous: bool,
    /// Maximum number of bytes captured of a packet; 0 for as many as a chunk holds.
    pub snap_length: u32,
    /// Memory for chunks in bytes, rounded up; allocated at once.
    pub pool_bytes: u64,
    /// Chunk size in bytes: a power of two from 4 KiB to 512 KiB; 0 for a size that suits the interface.
    pub chunk_size: u32,
    /// Chunks per lane and packets per chunk.
    pub chunks: ChunkOptions,
    /// Destination of arriving packets, captured or not; forwarding begins with the first rules.
    pub forward: Option<Forward>,
    /// Clock of the time stamps; those of the NIC are for received packets only.
    pub stamps: StampClock,
    /// What happens when the interface is removed.
    pub at_removal: AtRemoval,
    /// Messages for the user about these options; the source's notes begin with them.
    pub notes: Vec<String>,
}

impl TapOptions {
    /// Captures arriving packets of `interface`, with default sizes.
    pub fn new(interface: impl Into<String>) -> Self {
        TapOptions {
            interface: interface.into(),
            queues: Vec::new(),
            direction: Direction::In,
            taking: Taking::default(),
            mode: Mode::Auto,
            promiscuous: true,
            snap_length: 0,
            pool_bytes: DEFAULT_POOL_BYTES,
            chunk_size: 0,
            chunks: ChunkOptions::default(),
            forward: None,
            stamps: StampClock::Host,
            at_removal: AtRemoval::End,
            notes: Vec::new(),
        }
    }

    /// The options in a device's text, for its `interface`.
    ///
    /// Without a direction the tap captures both, like tcpdump, where this makes sense and the
    /// kernel supports it.
    ///
    /// # Errors
    ///
    /// - [`CaptureError::Queue`]: the programs cannot select a receive queue.
    /// - [`CaptureError::NoQueue`]: the interface does not have a receive queue.
    pub fn from_device(device: &DeviceSpec, interface: &Interface) -> Result<Self, CaptureError> {
        let mut options = Self::new(&device.name);
        let asked = &device.options;
        if device.queues != Queues::All {
            options.queues = queues::selected(&device.queues, interface)?;
        }
        if asked.exclusive {
            options.taking = Taking::Exclusive;
        }
        options.mode = asked.mode.unwrap_or(options.mode);
        options.stamps = asked.stamps.unwrap_or_default();
        options.direction = match asked.direction {
            Some(direction) => direction,
            None if options.stamps == StampClock::Nic => Direction::In,
            None => usual_direction(options.taking, interface, &mut options.notes),
        };
        options.promiscuous = asked.promiscuous.unwrap_or(options.promiscuous);
        options.snap_length = asked.snap_length.unwrap_or(options.snap_length);
        if let Some(size) = asked.pool {
            options.pool_bytes = size.0;
        }
        if let Some(size) = asked.chunk {
            // Any larger size is refused like this one.
            options.chunk_size = to_u32(size.0);
        }
        options.chunks = asked.chunks;
        options.at_removal = AtRemoval::of(asked);
        Ok(options)
    }
}

fn usual_direction(taking: Taking, interface: &Interface, notes: &mut Vec<String>) -> Direction {
    // The loopback receives every packet that it sends: one direction is enough.
    if taking == Taking::Exclusive || interface.is_loopback {
        return Direction::In;
    }
    match kernel::require(Feature::Tcx) {
        Ok(()) => Direction::InOut,
        Err(too_old) => {
            notes.push(format!("capturing received packets only: {too_old}"));
            Direction::In
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> Interface {
        Interface::find("lo").expect("every namespace has a loopback")
    }

    fn options(device: &str) -> Result<TapOptions, CaptureError> {
        let device: DeviceSpec = device.parse().expect("a device");
        TapOptions::from_device(&device, &loopback())
    }

    #[test]
    fn a_device_says_all_that_a_tap_can_be_asked() {
        let text = "tap:lo@1-2,255?exclusive&mode=tc&direction=out&promisc=off&snap=96\
                    &pool=8MiB&chunk=8KiB";
        let mut interface = loopback();
        interface.rx_queue_count = 256;
        let device: DeviceSpec = text.parse().unwrap();
        let said = TapOptions::from_device(&device, &interface).unwrap();
        let expected = TapOptions {
            queues: vec![1, 2, 255],
            direction: Direction::Out,
            taking: Taking::Exclusive,
            mode: Mode::Tc,
            promiscuous: false,
            snap_length: 96,
            pool_bytes: 8 << 20,
            chunk_size: 8 << 10,
            ..TapOptions::new("lo")
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn a_queue_that_the_interface_does_not_have_is_refused() {
        let refused = options("tap:lo@0,1").unwrap_err();
        let said = "lo has no receive queue 1: it has 1, numbered from 0";
        assert_eq!(refused.to_string(), said);
        assert_eq!(options("tap:lo@0").unwrap().queues, [0]);
    }

    #[test]
    fn what_a_device_does_not_say_is_as_usual() {
        assert_eq!(options("tap:lo").unwrap(), TapOptions::new("lo"));
        let mut wire = loopback();
        wire.is_loopback = false;
        let device: DeviceSpec = "tap:wire".parse().unwrap();
        let usual = TapOptions::from_device(&device, &wire).unwrap();
        let both = kernel::require(Feature::Tcx).is_ok();
        assert_eq!(usual.direction == Direction::InOut, both);
        assert_eq!(usual.notes.is_empty(), both);
    }

    #[test]
    fn a_queue_that_the_tap_does_not_know_is_refused() {
        let refused = options("tap:lo@256").unwrap_err();
        assert!(
            matches!(refused, CaptureError::Queue { queue: 256, .. }),
            "{refused}"
        );
    }
}
