// SPDX-License-Identifier: MIT OR Apache-2.0
//! libpcap's interface over Ringtap: what `libpcap.so` exports, for programs that are not rebuilt.
//!
//! A device of Ringtap is read here, through a hub; everything else (files, filters without a
//! device, `any`, ...) goes to the system's own libpcap. `docs/libpcap.md` lists every function.
//!
//! Invariants
//! - No panic crosses into C, and no call ends the process.
//! - A handle of this library is recognised, also when it was closed; every other handle is the
//!   real library's.
//! - Nothing here runs threads or keeps rights: a program may fork, or give up what it may do.

pub mod abi;
mod activate;
pub mod calls;
mod devices;
mod error;
mod handle;
mod handles;
mod helper;
pub mod list;
mod live;
mod plain;
mod real;
mod say;
mod settings;
mod text;
