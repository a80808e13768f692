// SPDX-License-Identifier: MIT OR Apache-2.0
//! The atomics of this crate: the standard library's, or loom's when a model is checked.
#![forbid(unsafe_code)]

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{Ordering, fence};
