// SPDX-License-Identifier: MIT OR Apache-2.0
//! Proofs by loom: every order in which two or three threads may meet, and what each may see.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p ringtap-pool --release --test loom`.
#![cfg(loom)]

mod chunk;
mod queue;
mod wake;
