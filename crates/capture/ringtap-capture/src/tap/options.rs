// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a tap.

use ringtap_device::{DeviceSpec, Direction};
use ringtap_net::interface::Interface;
use ringtap_net::kernel::{self, Feature};

use super::forward::Forward;
use crate::InterfaceOptions;

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
    /// The interface and what of it to capture.
    pub on: InterfaceOptions,
    /// What happens to packets after capture.
    pub taking: Taking,
    /// Destination of arriving packets, captured or not; forwarding begins with the first rules.
    pub forward: Option<Forward>,
}

impl TapOptions {
    /// Captures arriving packets of `interface`, with default sizes.
    pub fn new(interface: impl Into<String>) -> Self {
        TapOptions {
            on: InterfaceOptions::new(interface, Direction::In),
            taking: Taking::default(),
            forward: None,
        }
    }

    /// The options in a device's text, for its `interface`.
    ///
    /// Without a direction the tap captures both, like tcpdump, where this makes sense and the
    /// kernel supports it.
    #[must_use]
    pub fn from_device(device: &DeviceSpec, interface: &Interface) -> Self {
        let taking = if device.options.exclusive {
            Taking::Exclusive
        } else {
            Taking::Pass
        };
        let mut notes = Vec::new();
        let usual = || usual_direction(taking, interface, &mut notes);
        let on = InterfaceOptions::from_device(device, usual);
        TapOptions {
            on: InterfaceOptions { notes, ..on },
            taking,
            forward: None,
        }
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
    use ringtap_device::{Mode, Queues};

    use super::*;
    use crate::PoolAsked;

    fn loopback() -> Interface {
        Interface::find("lo").expect("every namespace has a loopback")
    }

    fn options(device: &str) -> TapOptions {
        TapOptions::from_device(&device.parse().expect("a device"), &loopback())
    }

    #[test]
    fn a_device_says_all_that_a_tap_can_be_asked() {
        let text = "tap:lo@1-2,255?exclusive&mode=tc&direction=out&promisc=off&snap=96\
                    &pool=8MiB&chunk=8KiB";
        let expected = TapOptions {
            on: InterfaceOptions {
                queues: Queues::chosen([1..=2, 255..=255]),
                mode: Mode::Tc,
                promiscuous: false,
                snap_length: Some(96),
                pool: PoolAsked {
                    bytes: Some(8 << 20),
                    chunk_bytes: Some(8 << 10),
                    ..PoolAsked::default()
                },
                ..InterfaceOptions::new("lo", Direction::Out)
            },
            taking: Taking::Exclusive,
            forward: None,
        };
        assert_eq!(options(text), expected);
    }

    #[test]
    fn what_a_device_does_not_say_is_as_usual() {
        assert_eq!(options("tap:lo"), TapOptions::new("lo"));
        let mut wire = loopback();
        wire.is_loopback = false;
        let device: DeviceSpec = "tap:wire".parse().unwrap();
        let usual = TapOptions::from_device(&device, &wire).on;
        let both = kernel::require(Feature::Tcx).is_ok();
        assert_eq!(usual.direction == Direction::InOut, both);
        assert_eq!(usual.notes.is_empty(), both);
    }
}
