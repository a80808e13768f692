// SPDX-License-Identifier: MIT OR Apache-2.0
//! vNPlug: shared memory, events and messages between a host process and QEMU guests.
//!
//! Three parts, after the paper of that name. *Dev* ([`device`]): memory that QEMU shows to the guest
//! as hot-plugged PCI devices, with events in both directions. *CTRL* ([`ctrl`]): messages over a
//! virtio-serial port. *API*: [`host`] and [`guest`]. Applications define the content of memory and
//! messages. QEMU and the kernels are unmodified. `docs/internals/vnplug.md` defines every byte.
//!
//! Invariants
//! - A guest can only make its own [`host::GuestVm`] busy, at a bounded rate and within fixed buffers.
//! - The host reads nothing back from the header of a device: the guest may have overwritten it.

pub mod ctrl;
pub mod device;
pub mod guest;
pub mod host;
