// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a recording: the files to write, when a new one begins, and when the recording stops.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use ringtap::User;
#[cfg(feature = "clap")]
use ringtap_device::flags;
use ringtap_device::{Size, SizeError};
use ringtap_file::Format;

use crate::budget::{AtLimit, FreeSpace};
use crate::closed::ClosedFiles;
use crate::compress::Compression;
use crate::error::{OptionsError, RecordError};

/// The files to write, and when a new one begins. With the feature `clap`, they are flags of a command line.
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
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", command(next_help_heading = "Files"))]
pub struct RecordOptions {
    /// Write to FILE: pcapng, or pcap if its name ends with .pcap; "-" is standard output.
    ///
    /// With .gz or .zst at its end, the file is compressed. The files of a series are numbered and dated, e.g.
    /// FILE_00001_20261231235959.pcapng, unless FILE has strftime fields, e.g. trace-%H%M%S.pcapng.
    #[cfg_attr(feature = "clap", arg(short = 'w', long = "write", value_name = "FILE", value_hint = clap::ValueHint::FilePath))]
    pub file: String,
    /// Format of the files: `pcapng`, or `pcap`, which has neither counters nor directions.
    #[cfg_attr(feature = "clap", arg(short = 'F', long, value_name = "FORMAT", value_parser = format_of, add = flags::words("pcapng|pcap")))]
    pub format: Option<Format>,
    /// Compress on threads of their own: `zstd` or `gzip`, with a level as in `zstd:9`.
    #[cfg_attr(feature = "clap", arg(long, value_name = "METHOD", add = flags::words("zstd|gzip")))]
    pub compress: Option<Compression>,
    /// Write past the kernel's page cache: for disks that are the limit, and to leave memory to other programs.
    #[cfg_attr(feature = "clap", arg(long))]
    pub direct_io: bool,
    /// Begin a new file when this one has SIZE bytes, e.g. 100MB or 1GiB.
    #[cfg_attr(feature = "clap", arg(short = 'C', long, value_name = "SIZE", value_parser = file_size))]
    pub file_size: Option<u64>,
    /// Begin a new file after this many seconds.
    #[cfg_attr(feature = "clap", arg(short = 'G', long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..)))]
    pub file_seconds: Option<u32>,
    /// Begin a new file after this number of packets.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub file_packets: Option<u64>,
    /// Keep only the COUNT newest files, those of earlier runs included: a ring; needs -C or -G.
    ///
    /// Files of earlier runs are those in the same folder whose names FILE makes.
    #[cfg_attr(feature = "clap", arg(short = 'W', long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..)))]
    pub file_count: Option<u32>,
    /// Bytes on disk that the files of the series may use, those of earlier runs included.
    ///
    /// Without -C a file has a tenth of them.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SIZE", value_parser = file_size))]
    pub max_total: Option<u64>,
    /// Space to leave free on the disk, e.g. 10GB or 5%; checked once per --interval and for each new file.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SPACE"))]
    pub min_free: Option<FreeSpace>,
    /// What to do at --max-total and --min-free: delete the oldest files, or stop recording.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "WHAT", default_value = "delete")
    )]
    pub at_limit: AtLimit,
    /// Write packets to the file as soon as no other packet waits, not once a second.
    #[cfg_attr(feature = "clap", arg(short = 'U', long))]
    pub packet_buffered: bool,
    /// Write an index beside each file, with which `ringtap find` reads only the blocks that can match.
    ///
    /// It is deleted with its file. -W and --max-total count files without it.
    #[cfg_attr(feature = "clap", arg(long))]
    pub index: bool,
    /// Run `COMMAND FILE` in a shell for each closed file, one after the other, e.g. `rsync -t --remove-source-files`.
    #[cfg_attr(feature = "clap", arg(short = 'z', long, value_name = "COMMAND"))]
    pub when_closed: Option<String>,
    /// When the recording stops.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub stop_at: StopAt,
    /// Record only around events.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub events: Option<EventOptions>,
    /// Capture filter to name in the files: its text only, packets are filtered by the capture.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub filter: String,
}

/// Smaller sizes are refused: the user probably forgot the unit. In bytes.
const MIN_FILE: u64 = 10_000;

/// A text is not the size of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileSizeError {
    /// It is no size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The unit was probably forgotten.
    #[error("{0} bytes are too few for a file (at least 10kB): {0}MB?")]
    TooSmall(u64),
}

/// Parses the size of a file, in bytes: `100MB`.
///
/// # Errors
///
/// The text is no size, or a size below 10 kB.
pub fn file_size(text: &str) -> Result<u64, FileSizeError> {
    match text.parse()? {
        Size(size @ MIN_FILE..) => Ok(size),
        Size(size) => Err(FileSizeError::TooSmall(size)),
    }
}

#[cfg(feature = "clap")]
fn format_of(word: &str) -> Result<Format, &'static str> {
    match word {
        "pcap" | "nsecpcap" => Ok(Format::Pcap),
        "pcapng" => Ok(Format::Pcapng),
        _ => Err("expected pcapng or pcap"),
    }
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
    /// Time before each event of which packets are recorded.
    pub before: Duration,
    /// Time after each event.
    pub after: Duration,
    /// Each packet that passes this filter is an event.
    pub trigger: Option<String>,
    /// Memory for the packets before an event; with less than they need, the window is shorter.
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
        self.compress
            .or_else(|| Compression::from_file_name(&self.file))
    }

    /// Refuses options that contradict each other.
    ///
    /// # Errors
    ///
    /// The first contradiction.
    pub fn check(&self) -> Result<(), OptionsError> {
        let named = Compression::from_file_name(&self.file);
        let is_other = |asked: Compression| named.is_some_and(|it| it.ending() != asked.ending());
        let has_budget = self.max_total.is_some() || self.min_free.is_some();
        Err(match self.file.as_str() {
            _ if self.file_count.is_some() && !self.is_series() => OptionsError::CountWithoutSeries,
            "-" if self.is_series() => OptionsError::SeriesOnStdout,
            "-" if has_budget => OptionsError::BudgetOnStdout,
            "-" if self.when_closed.is_some() => OptionsError::CommandOnStdout,
            "-" if self.index => OptionsError::IndexOnStdout,
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
    fn sizes_have_units_of_both_kinds() {
        assert_eq!(file_size("100MB"), Ok(100_000_000));
        assert_eq!(file_size("64M"), Ok(64 << 20));
    }

    #[test]
    fn a_size_without_unit_as_tcpdump_has_it_is_questioned() {
        let message = file_size("100").unwrap_err().to_string();
        assert!(message.contains("100MB?"), "{message}");
    }

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
