// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's side: messages, devices and events of the host.
//!
//! [`HostLink`] needs root, or an owner of the port and the devices' files in sysfs. Each application has a port, and
//! so a process, of its own.

mod link;
mod pci;
mod session;
mod vfio;

pub use link::{GuestDevice, GuestError, HostLink};
pub use session::GuestSession;
