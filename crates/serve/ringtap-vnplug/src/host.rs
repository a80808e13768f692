// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's side: devices and messages of one QEMU guest.
//!
//! [`GuestVm`] is the connection with one guest; give each a thread of its own. [`serve`] runs the
//! back ends of applications on it.

mod budget;
mod doorbell;
mod inventory;
mod libvirt;
mod memory;
mod migrate;
mod owner;
mod qmp;
mod serve;
mod session;
mod vm;

pub use budget::GuestLimits;
pub use memory::HostDevice;
pub use migrate::{Migration, migrate};
pub use qmp::{Monitor, QmpError};
pub use serve::{BackEnd, serve};
pub use session::{FromGuest, HostSession, SessionOutcome};
pub use vm::{GuestVm, VmError};
