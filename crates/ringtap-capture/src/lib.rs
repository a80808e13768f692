// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ringtap's sources (what writes packets into a pool) and its sender.

pub mod event;
pub mod files;
mod memfd;
pub mod pcap;
