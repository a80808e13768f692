// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ringtap's sources (what writes packets into a pool) and its sender.

pub mod bridge;
mod caret;
pub mod classify;
pub mod device;
pub mod files;
pub mod filter;
pub mod interface;
pub mod interrupts;
pub mod kernel;
mod libbpf;
pub mod packet;
pub mod pcap;
pub mod private;
pub mod rights;
mod shape;
pub mod sim;
pub mod tap;
pub mod transmit;
pub mod xdp;
