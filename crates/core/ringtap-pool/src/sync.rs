// SPDX-License-Identifier: MIT OR Apache-2.0
//! The atomics of this crate: the standard library's, or those of a model checker.
//!
//! Loom's atomics model weak memory, but cannot lie in shared memory. Those for Shuttle are the standard
//! library's, and let Shuttle run another thread before each access.

#[cfg(shuttle)]
mod scheduled;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{Ordering, fence};
#[cfg(shuttle)]
pub use scheduled::{AtomicU32, AtomicU64};
#[cfg(not(any(loom, shuttle)))]
pub use std::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{Ordering, fence};
