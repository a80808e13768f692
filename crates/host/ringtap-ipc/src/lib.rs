// SPDX-License-Identifier: MIT OR Apache-2.0
//! What processes share: mappings, events, descriptors over sockets, the protocol of the hub.
//!
//! The hub, its readers and the sources all stand on this crate and not on each other.

pub mod event;
pub mod mapping;
pub mod memfd;
pub mod peer;
pub mod protocol;
pub mod socket;
pub mod subscription;
pub mod time;
pub mod verdict;
pub mod waiter;
