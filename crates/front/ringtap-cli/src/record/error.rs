// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of recording.

use std::io;

/// Why packets cannot be recorded; what was written before stays valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum WriteError {
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
