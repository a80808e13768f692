// SPDX-License-Identifier: MIT OR Apache-2.0
//! Three engines on one corpus: libpcap's interpreter, Ringtap's, and eBPF in the kernel agree.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a panic is the report of a fault"
)]

mod agree;
mod dice;
mod grammar;
mod kernel;
mod many;
mod packets;
mod random;
mod shapes;

use ringtap_filter::Program;
use ringtap_filter::{LinkType, text};

fn program(expression: &str) -> Program {
    text::compile(expression, LinkType::ETHERNET, 65535).unwrap_or_else(|error| panic!("{error}"))
}
