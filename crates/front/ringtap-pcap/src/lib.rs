// SPDX-License-Identifier: MIT OR Apache-2.0
//! libpcap's interface over Ringtap: exports the functions of `libpcap.so`, for programs that are
//! not rebuilt.
//!
//! Ringtap reads its own devices here, through a hub or a capture process. All other calls (files,
//! filters without a device, `any`, …) go to the system's own libpcap. `docs/libpcap.md` lists
//! every function.
//!
//! Invariants
//! - No panic crosses into C, and no call ends the process.
//! - A program may leave a call in the middle, in every way in which it may leave one of libpcap's: see
//!   `border.c`.
//! - A handle of this library is recognised, even when it is closed; every other handle is the
//!   real library's.
//! - The library starts no threads, sets no signal handlers and keeps no rights, so a program may
//!   fork and give up its rights.

pub mod abi;
mod activate;
pub mod calls;
mod capture;
mod control;
mod error;
mod handle;
mod handles;
mod helper;
pub mod list;
mod messages;
mod reading;
mod real;
mod route;
mod settings;
mod shared;
mod text;
mod wakeup;
