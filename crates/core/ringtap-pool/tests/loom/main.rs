// SPDX-License-Identifier: MIT OR Apache-2.0
//! Proofs by loom: every interleaving of two or three threads.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p ringtap-pool --release --test loom`.
#![cfg(loom)]

mod chunk;
mod queue;
mod wake;
