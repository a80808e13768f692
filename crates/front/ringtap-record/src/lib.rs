// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records the packets of a capture in one file, or in a rotating series of files: pcapng or pcap, also compressed.
//!
//! [`RecordExt::record`] records until the capture ends. A program with a loop of its own calls the steps of a
//! [`Recorder`]. This crate never prints: [`Note`]s are for the user.
//!
//! Invariants
//! - A closed file is valid and ends after a whole block, even if the disk was full.
//! - After a kill, a file is valid up to an incomplete last block or frame. At most the buffer is missing:
//!   256 KiB (direct I/O: five of 1 MiB; compressed: two for each thread), or the packets since the last tick that
//!   flushed.
#![forbid(unsafe_code)]

mod budget;
mod closed;
mod compress;
mod direct;
mod error;
mod events;
mod machine;
mod medium;
mod names;
mod note;
mod options;
mod output;
mod record;
mod recorder;
mod ring;
mod totals;
mod workers;
mod writer;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests;

pub use budget::{AtLimit, FreeSpace, SpaceError};
pub use closed::ClosedFiles;
pub use compress::{Compression, CompressionError};
pub use error::{OptionsError, RecordError, WriteError};
pub use events::EventTotals;
pub use note::Note;
pub use options::{EventOptions, FileSizeError, RecordOptions, StopAt, file_size};
pub use record::RecordExt;
pub use recorder::{Recorded, Recorder};
pub use ringtap_file::Format;
pub use totals::WrittenFiles;
