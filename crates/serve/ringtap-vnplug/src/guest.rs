// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's side: messages, devices and events of the host.
//!
//! [`HostLink`] needs root, or an owner of the port and the devices' files in sysfs. Each application has a port, and
//! so a process, of its own.

mod link;
mod pci;
mod processor;
mod session;
mod vfio;

pub use link::{GuestDevice, GuestError, HostLink};
pub use processor::can_share_devices;
pub use session::GuestSession;
