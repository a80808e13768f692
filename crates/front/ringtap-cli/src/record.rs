// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes packets into one pcapng file, or into a rotating series of them.
//!
//! A verb calls `packet` of a [`Writer`] for each packet and `tick` at regular intervals, `rotate` when
//! either returns [`FileNext::Rotate`], and `finish` at the end.
//!
//! Invariants
//! - A closed file is valid and ends after a whole block, even if the disk was full.
//! - After a kill, a file is valid up to an incomplete last block. At most the buffer is missing:
//!   256 KiB, or the packets since the last tick that flushed.

mod closed;
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

pub(crate) use closed::ClosedFiles;
pub(crate) use machine::origin;
pub(crate) use options::FileOptions;
pub(crate) use recorder::{FileSignals, Recorder};
pub(crate) use verb::{RecordArgs, interfaces, run};
pub(crate) use writer::{FileNext, Writer, WrittenFiles};
