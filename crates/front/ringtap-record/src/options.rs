// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a recording: the files to write, when a new one begins, and when the recording stops.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use ringtap::User;
use ringtap_file::Format;

use crate::budget::{AtLimit, FreeSpace};
use crate::closed::ClosedFiles;
use crate::compress::Compression;
use crate::error::{OptionsError, RecordError};

/// The files to write, and when a new one begins. In brackets: the flag of `ringtap record`.
///
/// # Examples
///
/// The newest 1 GB in ten compressed files:
///
/// ```
/// use ringtap_record::RecordOptions;
///
/// let options = RecordOptions {
///     file_size: Some(100_000_000),
///     file_count: Some(10),
///     ..RecordOptions::to_file("trace.pcapng.zst")
/// };
/// options.check()?;
/// # Ok::<(), ringtap_record::OptionsError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RecordOptions {
    /// Name of the file (`-w`), or of a series of files: numbered and dated, unless it has `strftime` fields. `-` is
    /// standard output.
    pub file: String,
    /// Format of the files (`-F`); without it by the name: pcap if it ends with `.pcap`, else pcapng.
    pub format: Option<Format>,
    /// Compression on threads of their own (`--compress`); without it by the name: `.gz`, `.zst`.
    pub compress: Option<Compression>,
    /// Write past the kernel's page cache (`--direct-io`).
    pub direct_io: bool,
    /// Begin a new file when this one has this number of bytes (`-C`).
    pub file_size: Option<u64>,
    /// Begin a new file after this number of seconds (`-G`).
    pub file_seconds: Option<u32>,
    /// Begin a new file after this number of packets (`-b packets`).
    pub file_packets: Option<u64>,
    /// Keep only this number of files, the newest, those of earlier runs included (`-W`).
    pub file_count: Option<u32>,
    /// Bytes on disk that the files of the series may use, those of earlier runs included (`--max-total`). Without
    /// `file_size` a file has a tenth of them.
    pub max_total: Option<u64>,
    /// Space to leave free on the disk (`--min-free`).
    pub min_free: Option<FreeSpace>,
    /// Action at these limits (`--at-limit`).
    pub at_limit: AtLimit,
    /// Write packets as soon as no other packet waits, not once a second (`-U`).
    pub packet_buffered: bool,
    /// Command that a shell runs for each closed file, with its name as last argument (`-z`).
    pub when_closed: Option<String>,
    /// When the recording stops (`-a`).
    pub stop_at: StopAt,
    /// Record only around events (`--before`).
    pub events: Option<EventOptions>,
    /// Capture filter to name in the files: its text only, packets are filtered by the capture.
    pub filter: String,
}

/// When a recording stops, if not at the end of the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopAt {
    /// Time after which [`RecordExt::record`](crate::RecordExt::record) ends the capture.
    pub duration: Option<Duration>,
    /// Size of a single file.
    pub size_bytes: Option<u64>,
    /// Number of files of a series.
    pub files: Option<u32>,
    /// Number of packets.
    pub packets: Option<u64>,
}

/// Which packets are recorded, if not all: those around events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventOptions {
    /// Time before each event of which packets are recorded (`--before`).
    pub before: Duration,
    /// Time after each event (`--after`).
    pub after: Duration,
    /// Each packet that passes this filter is an event (`--trigger`).
    pub trigger: Option<String>,
    /// Memory for the packets before an event; with less than they need, the window is shorter (`--before-size`).
    pub max_bytes: u64,
}

impl EventOptions {
    /// Packets from `before` an event until 10 s after it, in 256 MiB of memory.
    #[must_use]
    pub fn before(before: Duration) -> Self {
        EventOptions {
            before,
            after: Duration::from_secs(10),
            trigger: None,
            max_bytes: 256 << 20,
        }
    }
}

impl RecordOptions {
    /// Records into this file.
    pub fn to_file(file: impl Into<String>) -> Self {
        RecordOptions {
            file: file.into(),
            ..RecordOptions::default()
        }
    }

    /// The format of the files.
    #[must_use]
    pub fn format(&self) -> Format {
        let plain = match self.compression() {
            Some(method) => self.file.trim_end_matches(method.ending()),
            None => &self.file,
        };
        let by_name = if plain.ends_with(".pcap") {
            Format::Pcap
        } else {
            Format::Pcapng
        };
        self.format.unwrap_or(by_name)
    }

    /// Starts the shell for the commands of closed files, as this user if one is given; `None` without commands.
    ///
    /// A process starts no program once it is confined: call this before.
    ///
    /// # Errors
    ///
    /// [`RecordError::Shell`].
    pub fn start_commands(&self, user: Option<&User>) -> Result<Option<ClosedFiles>, RecordError> {
        let command = self.when_closed.as_deref();
        command
            .map(|command| ClosedFiles::start(command, user))
            .transpose()
    }

    /// Whether there can be several files.
    pub(crate) fn is_series(&self) -> bool {
        self.size_limit().is_some() || self.file_seconds.is_some() || self.file_packets.is_some()
    }

    /// Whether old files are deleted.
    pub(crate) fn is_ring(&self) -> bool {
        let has_budget = self.max_total.is_some() || self.min_free.is_some();
        self.file_count.is_some() || (has_budget && self.is_series())
    }

    /// Size in bytes at which a new file begins.
    pub(crate) fn size_limit(&self) -> Option<u64> {
        let deletes = self.at_limit == AtLimit::Delete;
        let tenth = self.max_total.filter(|_| deletes).map(|total| total / 10);
        self.file_size.or(tenth)
    }

    /// How files are compressed, by `compress` or the file's name.
    pub(crate) fn compression(&self) -> Option<Compression> {
        self.compress.or_else(|| Compression::of_name(&self.file))
    }

    /// Refuses options that contradict each other.
    ///
    /// # Errors
    ///
    /// The first contradiction.
    pub fn check(&self) -> Result<(), OptionsError> {
        let named = Compression::of_name(&self.file);
        let is_other = |asked: Compression| named.is_some_and(|it| it.ending() != asked.ending());
        let has_budget = self.max_total.is_some() || self.min_free.is_some();
        Err(match self.file.as_str() {
            _ if self.file_count.is_some() && !self.is_series() => OptionsError::CountWithoutSeries,
            "-" if self.is_series() => OptionsError::SeriesOnStdout,
            "-" if has_budget => OptionsError::BudgetOnStdout,
            "-" if self.when_closed.is_some() => OptionsError::CommandOnStdout,
            file if self.when_closed.is_some() && file.contains('\n') => OptionsError::LineBreak,
            "-" if io::stdout().is_terminal() => OptionsError::Terminal,
            "-" if self.direct_io => OptionsError::DirectOnStdout,
            _ if self.direct_io && self.compression().is_some() => OptionsError::DirectCompressed,
            _ if self.compress.is_some_and(is_other) => OptionsError::OtherEnding,
            _ if self.stop_at.files.is_some() && !self.is_series() => {
                OptionsError::FilesWithoutSeries
            }
            _ if self.stop_at.size_bytes.is_some() && self.is_series() => {
                OptionsError::SizeOfSeries
            }
            _ if self.min_free.is_some()
                && self.at_limit == AtLimit::Delete
                && !self.is_series() =>
            {
                OptionsError::FreeWithoutSeries
            }
            _ => return Ok(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_options_choose_format_and_compression() {
        let of = |options: RecordOptions| {
            options.check().unwrap();
            (
                options.format(),
                options.compression().map(Compression::ending),
            )
        };
        let named = |name| of(RecordOptions::to_file(name));
        assert_eq!(named("a.pcapng"), (Format::Pcapng, None));
        assert_eq!(named("a.pcap"), (Format::Pcap, None));
        assert_eq!(named("a.pcap.gz"), (Format::Pcap, Some(".gz")));
        let compressed = RecordOptions {
            compress: Some(Compression::Zstd(9)),
            ..RecordOptions::to_file("a")
        };
        assert_eq!(of(compressed), (Format::Pcapng, Some(".zst")));
        let both = RecordOptions {
            format: Some(Format::Pcapng),
            ..RecordOptions::to_file("a.pcap.zst")
        };
        assert_eq!(of(both), (Format::Pcapng, Some(".zst")));
        let contradicting = RecordOptions {
            compress: Some(Compression::ZSTD),
            ..RecordOptions::to_file("a.gz")
        };
        assert_eq!(contradicting.check(), Err(OptionsError::OtherEnding));
    }

    #[test]
    fn a_disk_budget_makes_a_ring_of_ten_files() {
        let deleting = RecordOptions {
            max_total: Some(10_000_000_000),
            ..RecordOptions::to_file("a")
        };
        assert_eq!(
            (deleting.size_limit(), deleting.is_ring()),
            (Some(1_000_000_000), true)
        );
        let stopping = RecordOptions {
            at_limit: AtLimit::Stop,
            ..deleting
        };
        assert!(!stopping.is_series());
    }
}
