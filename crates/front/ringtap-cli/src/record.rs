// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes packets into one file, or into a rotating series of them: pcapng or pcap, also compressed.
//!
//! A verb calls `packet` of a [`Writer`] for each packet and `tick` at regular intervals, `rotate` when
//! either returns [`FileNext::Rotate`], and `finish` at the end.
//!
//! Invariants
//! - A closed file is valid and ends after a whole block, even if the disk was full.
//! - After a kill, a file is valid up to an incomplete last block or frame. At most the buffer is missing:
//!   256 KiB (direct I/O: five of 1 MiB; compressed: two for each thread), or the packets since the last tick that
//!   flushed.

mod budget;
mod closed;
mod compress;
mod criterion;
mod direct;
mod error;
mod events;
mod machine;
mod medium;
mod names;
mod options;
mod output;
mod recorder;
mod ring;
mod verb;
mod workers;
mod writer;

#[cfg(test)]
mod tests;
#[cfg(test)]
use {budget::AtLimit, criterion::StopAt};

pub(crate) use closed::ClosedFiles;
pub(crate) use events::Events;
pub(crate) use machine::origin;
pub(crate) use options::FileOptions;
pub(crate) use recorder::Recorder;
pub(crate) use verb::{RecordArgs, interfaces, run};
pub(crate) use writer::{FileNext, Writer, WrittenFiles};
