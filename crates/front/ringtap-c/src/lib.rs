// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library: `include/ringtap.h` is its documentation, this is what stands behind it.
//!
//! Invariants
//! - No panic crosses into C, and no call prints, logs or ends the process.
//! - A handle is a number, never an address: what is none, or was closed, is recognised.
//! - `include/ringtap.h` and the shared library name the same calls; a test compares them.

pub mod calls;
mod error;
mod handles;
mod session;
pub mod types;
