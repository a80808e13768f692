// SPDX-License-Identifier: MIT OR Apache-2.0
//! The built library: its symbols, and C programs and packaged programs that read through it.

mod conformance;
mod elevated;
mod misuse;
mod order;
mod own;
mod programs;
mod same;
mod support;
mod symbols;
mod tcpdump;
mod watchers;
