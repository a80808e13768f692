// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notes for the user of a recording.

use std::time::Duration;

/// An event of a recording that the user should know of; its text is a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The files have used up their space: recording stops.
    SpaceUsed,
    /// The memory for packets before an event was too small.
    ShortWindow {
        /// Time before the event that should have been recorded.
        wanted: Duration,
        /// Time before the event of which memory held packets.
        held: Duration,
    },
    /// Packets have times that a pcap file cannot hold.
    LateTimes {
        /// Number of packets.
        packets: u64,
    },
    /// The command for closed files is not run for a file, the first one.
    CommandSkipped {
        /// Name of the file.
        file: String,
    },
    /// A file has no index, which `ringtap find` does without.
    NoIndex {
        /// The reason.
        cause: String,
    },
    /// Files have no index, because the thread that writes them was too far behind.
    IndexSkipped {
        /// Number of files.
        files: u64,
    },
    /// The command was not run for several files.
    CommandsSkipped {
        /// Number of files.
        files: u64,
    },
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Note::SpaceUsed => {
                f.write_str("recording stops: the files have used up their space on disk")
            }
            Note::ShortWindow { wanted, held } => write!(
                f,
                "an event: of the {:.1} s before it, memory held {:.1} s: raise `events.max_bytes`",
                wanted.as_secs_f64(),
                held.as_secs_f64(),
            ),
            Note::LateTimes { packets } => write!(
                f,
                "{packets} packets have times after 7 February 2106, which pcap files cannot hold: they have the \
                 last second that fits (pcapng files hold them)"
            ),
            Note::CommandSkipped { file } => write!(
                f,
                "`when_closed`: the command is not run for {file}: it is too far behind, or its shell has ended"
            ),
            Note::NoIndex { cause } => {
                write!(f, "`index`: {cause}: a search reads all of the file")
            }
            Note::IndexSkipped { files } => write!(
                f,
                "`index`: {files} files have no index, because it was too far behind: `ringtap index` writes it"
            ),
            Note::CommandsSkipped { files } => {
                write!(
                    f,
                    "`when_closed`: files for which the command was not run: {files}"
                )
            }
        }
    }
}
