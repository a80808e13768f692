// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of a hub for the guests of QEMU.
//!
//! On the host, one process per virtual machine subscribes to the groups that the machine may read,
//! and copies their packets into memory that only this guest maps. In the guest, an agent offers each
//! group as a hub of its own. `docs/vm.md` is the manual.
//!
//! Invariants
//! - To the hub, a guest is an ordinary reader with one subscription per group.
//! - The guest can map only packets that pass the filters of its own subscriptions.

pub mod guest;
pub mod host;
pub mod messages;
