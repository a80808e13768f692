// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of recording.
//!
//! Invariants
//! - A message has the fields of [`RecordOptions`](crate::RecordOptions) in backticks, so that a program can put its own
//!   names in their places.

use std::io;

/// Why a recording cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The options contradict each other.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The packets cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The capture failed, or the filter of events is not valid.
    #[error(transparent)]
    Capture(#[from] ringtap::Error),
    /// The thread that writes indexes cannot start.
    #[error("`index`: cannot start a thread: {0}")]
    Index(io::Error),
    /// The shell for the commands of closed files cannot start.
    #[error("`when_closed`: cannot start a shell: {0}")]
    Shell(io::Error),
}

/// Options that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the contradictions")]
pub enum OptionsError {
    #[error("`file_count` keeps the newest files of a series: add `file_size` or `file_seconds`")]
    CountWithoutSeries,
    #[error("standard output cannot be split into files: give a file name")]
    SeriesOnStdout,
    #[error("standard output uses no disk: leave out `max_total` and `min_free`")]
    BudgetOnStdout,
    #[error(
        "`when_closed` runs a command for each file, and standard output is none: give a file name"
    )]
    CommandOnStdout,
    #[error("`index`: standard output is no file: give a file name")]
    IndexOnStdout,
    #[error("`when_closed`: a file's name cannot contain a line break")]
    LineBreak,
    #[error("`file`: standard output is a terminal: pipe it into a program or give a file name")]
    Terminal,
    #[error("`direct_io`: standard output is no file: give a file name")]
    DirectOnStdout,
    #[error(
        "`direct_io` is for disks that are too slow for the packets: leave it out with compression"
    )]
    DirectCompressed,
    #[error("`compress` and the ending of the file's name contradict each other")]
    OtherEnding,
    #[error("`stop_at.files` stops a series: add `file_size` or `file_seconds`")]
    FilesWithoutSeries,
    #[error("`stop_at.size_bytes` stops a single file: of a series, use `stop_at.files`")]
    SizeOfSeries,
    #[error(
        "`min_free` deletes the oldest files of a series: add `file_size` or `file_seconds`, or `at_limit` stop"
    )]
    FreeWithoutSeries,
}

/// Why packets cannot be recorded; what was written before stays valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum WriteError {
    /// A name with `%` that `strftime` does not understand.
    #[error("{pattern}: not a file name with a time: {reason}; write %% for a single %")]
    Pattern { pattern: String, reason: String },
    /// A file cannot be created.
    #[error("{file}: cannot be created: {cause}")]
    Create { file: String, cause: io::Error },
    /// The file's header could not be written.
    #[error("{file}: nothing could be written: {cause}")]
    Begin { file: String, cause: io::Error },
    /// Writing failed; the file was truncated after its last whole packet.
    #[error(
        "{file}: writing failed after {size_bytes} bytes: {cause}; \
         the file is valid up to there (packets: {packets})"
    )]
    Write {
        file: String,
        size_bytes: u64,
        packets: u64,
        cause: io::Error,
    },
    /// Writing failed, and the file could not be truncated to whole packets.
    #[error(
        "{file}: writing failed after {size_bytes} bytes: {cause}; \
         after its whole packets ({packets}) the file ends inside a block"
    )]
    Torn {
        file: String,
        size_bytes: u64,
        packets: u64,
        cause: io::Error,
    },
    /// The program that reads standard output has closed it.
    #[error("{file}: the reading end is closed (packets written before: {packets})")]
    Closed { file: String, packets: u64 },
    /// The oldest file of a ring cannot be deleted.
    #[error("{file}: the oldest file of the ring cannot be deleted: {cause}")]
    Delete { file: String, cause: io::Error },
    /// The files have used up their space before the first packet of a file.
    #[error(
        "{file}: no room for another file: raise `max_total`, lower `min_free` or `file_size`, or delete files"
    )]
    Budget { file: String },
    /// The free space cannot be read.
    #[error("{folder}: its free space is unknown: {cause}")]
    Space { folder: String, cause: io::Error },
    /// The sources have several link types, a pcap file only one.
    #[error("{file}: pcap has one link type, and the sources have several: use pcapng")]
    LinkTypes { file: String },
}
