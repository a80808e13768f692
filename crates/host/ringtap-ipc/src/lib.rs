// SPDX-License-Identifier: MIT OR Apache-2.0
//! What processes share: mappings, transports, doorbells and the hub protocol.
//!
//! Hub, readers and sources use this crate, and not each other.

pub mod doorbell;
pub mod event;
pub mod mapping;
pub mod memfd;
pub mod peer;
pub mod protocol;
pub mod socket;
pub mod subscription;
pub mod time;
pub mod transport;
pub mod verdict;
pub mod waiter;
