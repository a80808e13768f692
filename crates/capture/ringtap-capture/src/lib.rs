// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ringtap's sources: what writes packets into a pool.

pub mod bridge;
pub mod classify;
pub mod libbpf;
mod open;
pub mod packet;
pub mod pcap;
mod shape;
pub mod sim;
pub mod tap;
pub mod xdp;

pub use open::{OpenError, open};
