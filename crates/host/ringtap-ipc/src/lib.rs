// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared means of processes: mappings, transports, doorbells and the hub protocol.
//!
//! Hubs, readers and sources use this crate; they do not depend on each other.

pub mod doorbell;
pub mod environment;
pub mod event;
pub mod folder;
pub mod mapping;
pub mod memfd;
pub mod mutex;
pub mod peer;
pub mod pool_memory;
pub mod protocol;
pub mod rate;
pub mod socket;
pub mod subscription;
pub mod text;
pub mod thread;
pub mod time;
pub mod transport;
pub mod trusted;
pub mod verdict;
