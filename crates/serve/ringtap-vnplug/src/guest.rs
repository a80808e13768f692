// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's side: messages, devices and events of the host.
//!
//! [`HostLink`] needs root, or an owner of the port and the devices' files in sysfs. One process of a
//! guest has the port; it serves all applications.

mod link;
mod pci;
mod session;
mod vfio;

pub use link::{GuestDevice, GuestError, HostLink};
pub use session::GuestSession;
