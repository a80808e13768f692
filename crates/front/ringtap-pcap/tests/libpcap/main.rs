// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library as programs find it: what it exports, and what real programs read through it.

mod misuse;
mod own;
mod programs;
mod same;
mod support;
mod symbols;
mod tcpdump;
mod watchers;
