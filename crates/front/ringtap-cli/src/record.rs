// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording: packets into pcapng files, one or a rotating series of them.
//!
//! [`Writer`] is all that a verb needs: `packet` for each packet, `tick` now and then, `rotate`
//! when either asks for it, `finish` at the end.
//!
//! Invariants
//! - A file that was closed is valid, also when the disk was full: it ends after a whole block.
//! - A process that is killed leaves files that are whole up to a cut last block; at most the
//!   buffer (256 KiB, or what came since the last tick that flushed) is missing.
#![forbid(unsafe_code)]

mod blocks;
mod error;
mod machine;
mod names;
mod options;
mod output;
mod recorder;
mod verb;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use blocks::{Interface, Origin, Packet, Statistics};
pub(crate) use options::FileOptions;
pub(crate) use recorder::Recorder;
pub(crate) use verb::{RecordArgs, interface, run};
pub(crate) use writer::{Next, Writer, Written};
