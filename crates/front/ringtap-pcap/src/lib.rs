// SPDX-License-Identifier: MIT OR Apache-2.0
//! libpcap's interface over Ringtap: exports what `libpcap.so` exports, for programs that are not
//! rebuilt.
//!
//! Ringtap's devices are read here, through a hub or a capture process. Everything else (files,
//! filters without a device, `any`, …) goes to the system's own libpcap. `docs/libpcap.md` lists
//! every function.
//!
//! Invariants
//! - No panic crosses into C, and no call ends the process.
//! - A handle of this library is recognised, also when it was closed; every other handle is the
//!   real library's.
//! - The library starts no threads, sets no signal handlers and keeps no rights: a program may
//!   fork, and give up its rights.

pub mod abi;
mod activate;
pub mod calls;
mod capture;
mod error;
mod handle;
mod handles;
mod helper;
pub mod list;
mod messages;
mod real;
mod route;
mod text;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic while it was locked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
