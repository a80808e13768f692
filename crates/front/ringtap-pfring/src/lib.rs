// SPDX-License-Identifier: MIT OR Apache-2.0
//! PF_RING's interface over a group of a hub; `docs/pfring.md` documents it.
//!
//! Invariants
//! - No panic crosses into C.
//! - Structures have the layout of PF_RING 8.9; a test compares them with `include/pfring.h`.

pub mod abi;
pub mod calls;
mod cluster;
mod error;
mod parse;
mod ring;
mod rules;
mod shared;
