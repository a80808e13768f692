// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of recording.
//!
//! Invariants
//! - A message names the flags of `ringtap record`; [`RecordOptions`](crate::RecordOptions) has the flag of each field.

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
    /// The shell for the commands of closed files cannot start.
    #[error("-z: cannot start a shell: {0}")]
    Shell(io::Error),
}

/// Options that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the contradictions")]
pub enum OptionsError {
    #[error("-W keeps the newest files of a series: add -C SIZE or -G SECONDS")]
    CountWithoutSeries,
    #[error("standard output cannot be split into files: give a file name with -w")]
    SeriesOnStdout,
    #[error("standard output uses no disk: leave out --max-total and --min-free")]
    BudgetOnStdout,
    #[error(
        "-z runs a command for each file, and standard output is none: give a file name with -w"
    )]
    CommandOnStdout,
    #[error("-z: a file's name cannot contain a line break")]
    LineBreak,
    #[error("-w -: standard output is a terminal: pipe it into a program or give a file name")]
    Terminal,
    #[error("--direct-io: standard output is no file: give a file name with -w")]
    DirectOnStdout,
    #[error(
        "--direct-io is for disks that are too slow for the packets: leave it out with compression"
    )]
    DirectCompressed,
    #[error("--compress and the ending of the file's name contradict each other")]
    OtherEnding,
    #[error("-a files stops a series: add -C SIZE or -G SECONDS")]
    FilesWithoutSeries,
    #[error("-a filesize stops a single file: with -C, -G or -b use -a files")]
    SizeOfSeries,
    #[error(
        "--min-free deletes the oldest files of a series: add -C SIZE, -G SECONDS or --at-limit stop"
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
        "{file}: no room for another file: raise --max-total, lower --min-free or -C, or delete files"
    )]
    Budget { file: String },
    /// The free space cannot be read.
    #[error("{folder}: its free space is unknown: {cause}")]
    Space { folder: String, cause: io::Error },
    /// The sources have several link types, a pcap file only one.
    #[error("{file}: pcap has one link type, and the sources have several: use pcapng")]
    LinkTypes { file: String },
}
