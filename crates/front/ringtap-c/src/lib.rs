// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library; `include/ringtap.h` documents it.
//!
//! Invariants
//! - No panic crosses into C, and no call prints, logs or ends the process.
//! - A handle is a number, never an address: closed and invalid handles are recognised.
//! - `include/ringtap.h` and the shared library name the same calls; a test compares them.

pub mod calls;
mod error;
mod flows;
mod handles;
mod session;
pub mod types;
