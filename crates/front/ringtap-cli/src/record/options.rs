// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file options of the command line, named as in tcpdump and dumpcap.

use std::io::{self, IsTerminal as _};

use clap::{Args, ValueHint};
use ringtap_device::{Size, SizeError};
use ringtap_file::Format;

use super::budget::{AtLimit, FreeSpace};
use super::compress::Compression;
use super::criterion::{Criterion, StopAt};
use crate::{UsageError, completion};

/// The files to write, and when a new one begins.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Files")]
pub(crate) struct FileOptions {
    /// Write to FILE: pcapng, or pcap if its name ends with .pcap; "-" is standard output.
    ///
    /// With .gz or .zst at its end, the file is compressed. The files of a series are numbered and dated, e.g.
    /// FILE_00001_20261231235959.pcapng, unless FILE has strftime fields, e.g. trace-%H%M%S.pcapng.
    #[arg(short = 'w', long = "write", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: String,

    /// Format of the files: `pcapng`, or `pcap`, which has neither counters nor directions.
    #[arg(short = 'F', long, value_name = "FORMAT", value_parser = format,
          add = completion::words(&["pcapng", "pcap"]))]
    pub(crate) format: Option<Format>,

    /// Write pcap, as for dumpcap: the same as -F pcap.
    #[arg(short = 'P', conflicts_with = "format")]
    pub(crate) pcap: bool,

    /// Compress on threads of their own: `zstd` or `gzip`, with a level as in `zstd:9`.
    #[arg(long, value_name = "METHOD", add = completion::words(&["zstd", "gzip"]))]
    pub(crate) compress: Option<Compression>,

    /// Write past the kernel's page cache: for disks that are the limit, and to leave memory to other programs.
    #[arg(long)]
    pub(crate) direct_io: bool,

    /// Begin a new file when this one has SIZE bytes, e.g. 100MB or 1GiB.
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = file_size)]
    pub(crate) file_size: Option<u64>,

    /// Begin a new file after this many seconds.
    #[arg(short = 'G', long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) file_seconds: Option<u32>,

    /// Keep only the COUNT newest files, those of earlier runs included: a ring; needs -C or -G.
    ///
    /// Files of earlier runs are those in the same folder whose names FILE makes.
    #[arg(short = 'W', long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) file_count: Option<u32>,

    /// Begin a new file as dumpcap does: `filesize:KB`, `duration:SECONDS`, `packets:N`; keep `files:N`.
    #[arg(short = 'b', long = "ring-buffer", value_name = "CRITERION")]
    pub(crate) next_file: Vec<Criterion>,

    /// Stop as dumpcap does: `duration:SECONDS`, `filesize:KB`, `files:N`, `packets:N`.
    #[arg(short = 'a', long = "autostop", value_name = "CRITERION")]
    pub(crate) autostop: Vec<Criterion>,

    /// Bytes on disk that the files of the series may use, those of earlier runs included.
    ///
    /// Without -C a file has a tenth of them.
    #[arg(long, value_name = "SIZE", value_parser = file_size)]
    pub(crate) max_total: Option<u64>,

    /// Space to leave free on the disk, e.g. 10GB or 5%; checked once per --interval and for each new file.
    #[arg(long, value_name = "SPACE")]
    pub(crate) min_free: Option<FreeSpace>,

    /// What to do at --max-total and --min-free: delete the oldest files, or stop recording.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub(crate) at_limit: AtLimit,

    /// Write packets to the file as soon as no other packet waits, not once a second.
    #[arg(short = 'U', long)]
    pub(crate) packet_buffered: bool,

    /// Run `COMMAND FILE` in a shell for each closed file, one after the other, e.g. `rsync -t --remove-source-files`.
    #[arg(short = 'z', long, value_name = "COMMAND")]
    pub(crate) when_closed: Option<String>,

    /// Packets after which a new file begins.
    #[arg(skip)]
    pub(crate) file_packets: Option<u64>,

    /// The criteria of `autostop`.
    #[arg(skip)]
    pub(crate) stop_at: StopAt,
}

impl FileOptions {
    /// Whether there can be several files.
    pub(crate) fn is_series(&self) -> bool {
        self.file_size.is_some() || self.file_seconds.is_some() || self.file_packets.is_some()
    }

    /// Whether old files are deleted.
    pub(crate) fn is_ring(&self) -> bool {
        let has_budget = self.max_total.is_some() || self.min_free.is_some();
        self.file_count.is_some() || (has_budget && self.is_series())
    }

    /// The format, by -F or the file's name.
    pub(crate) fn format(&self) -> Format {
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

    /// How files are compressed, by --compress or the file's name.
    pub(crate) fn compression(&self) -> Option<Compression> {
        self.compress.or_else(|| Compression::of_name(&self.file))
    }

    /// The options with dumpcap's criteria in their places.
    ///
    /// # Errors
    ///
    /// Options contradict each other.
    pub(crate) fn resolved(&self) -> Result<Self, UsageError> {
        let mut resolved = self.clone();
        if self.pcap {
            resolved.format = Some(Format::Pcap);
        }
        for criterion in &self.next_file {
            criterion.begins_file(&mut resolved)?;
        }
        for criterion in &self.autostop {
            resolved.stop_at.add(*criterion)?;
        }
        if let Some(total) = self.max_total
            && self.at_limit == AtLimit::Delete
        {
            resolved.file_size.get_or_insert(total / 10);
        }
        resolved.check()?;
        Ok(resolved)
    }

    /// Refuses options that contradict each other.
    fn check(&self) -> Result<(), UsageError> {
        let named = Compression::of_name(&self.file);
        let is_other = |asked: Compression| named.is_some_and(|it| it.ending() != asked.ending());
        let has_budget = self.max_total.is_some() || self.min_free.is_some();
        let wrong = match self.file.as_str() {
            _ if self.file_count.is_some() && !self.is_series() => {
                "-W keeps the newest files of a series: add -C SIZE or -G SECONDS"
            }
            "-" if self.is_series() => {
                "standard output cannot be split into files: give a file name with -w"
            }
            "-" if has_budget => {
                "standard output uses no disk: leave out --max-total and --min-free"
            }
            "-" if self.when_closed.is_some() => {
                "-z runs a command for each file, and standard output is none: give a file name with -w"
            }
            file if self.when_closed.is_some() && file.contains('\n') => {
                "-z: a file's name cannot contain a line break"
            }
            "-" if io::stdout().is_terminal() => {
                "-w -: standard output is a terminal: pipe it into a program or give a file name"
            }
            "-" if self.direct_io => {
                "--direct-io: standard output is no file: give a file name with -w"
            }
            _ if self.direct_io && self.compression().is_some() => {
                "--direct-io is for disks that are too slow for the packets: leave it out with compression"
            }
            _ if self.compress.is_some_and(is_other) => {
                "--compress and the ending of the file's name contradict each other"
            }
            _ if self.stop_at.files.is_some() && !self.is_series() => {
                "-a files stops a series: add -C SIZE or -G SECONDS"
            }
            _ if self.stop_at.size_bytes.is_some() && self.is_series() => {
                "-a filesize stops a single file: with -C, -G or -b use -a files"
            }
            _ if self.min_free.is_some()
                && self.at_limit == AtLimit::Delete
                && !self.is_series() =>
            {
                "--min-free deletes the oldest files of a series: add -C SIZE, -G SECONDS or --at-limit stop"
            }
            _ => return Ok(()),
        };
        Err(UsageError(wrong.to_owned()))
    }
}

/// Smaller sizes are refused: the user probably forgot the unit. In bytes.
const SMALLEST_FILE: u64 = 10_000;

pub(super) fn file_size(given: &str) -> Result<u64, String> {
    let Size(size) = given
        .parse()
        .map_err(|error: SizeError| error.to_string())?;
    if size < SMALLEST_FILE {
        Err(format!(
            "{size} bytes are too few for a file (at least 10kB): {size}MB?"
        ))
    } else {
        Ok(size)
    }
}

fn format(word: &str) -> Result<Format, String> {
    match word {
        "pcap" | "nsecpcap" => Ok(Format::Pcap),
        "pcapng" => Ok(Format::Pcapng),
        _ => Err("expected pcapng or pcap".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        files: FileOptions,
    }

    fn parse(words: &[&str]) -> Result<FileOptions, String> {
        let line = Line::try_parse_from([&["x"], words].concat());
        let files = line.map_err(|error| error.to_string())?.files;
        files.resolved().map_err(|error| error.to_string())
    }

    #[test]
    fn sizes_have_units_of_both_kinds() {
        assert_eq!(file_size("100MB"), Ok(100_000_000));
        assert_eq!(file_size("64M"), Ok(64 << 20));
    }

    #[test]
    fn a_size_without_unit_as_tcpdump_has_it_is_questioned() {
        let message = file_size("100").unwrap_err();
        assert!(message.contains("100MB?"), "{message}");
    }

    #[test]
    fn flags_are_those_of_tcpdump() {
        let line = ["-w", "f", "-C", "1MB", "-G", "60", "-W", "5"];
        let files = parse(&line).unwrap();
        assert_eq!(files.file_size, Some(1_000_000));
        assert_eq!(files.file_seconds, Some(60));
        assert_eq!(files.file_count, Some(5));
        assert!(parse(&["-w", "f", "-G", "0"]).is_err());
        assert!(parse(&["-C", "1MB"]).is_err());
    }

    #[test]
    fn criteria_of_dumpcap_are_the_same_options() {
        let files = parse(&[
            "-w",
            "f",
            "-b",
            "filesize:1000",
            "-b",
            "duration:60",
            "-b",
            "files:5",
            "-b",
            "packets:7",
            "-a",
            "files:9",
            "-a",
            "duration:3",
            "-a",
            "packets:8",
        ]);
        let files = files.unwrap();
        assert_eq!(files.file_size, Some(1_000_000));
        assert_eq!(files.file_seconds, Some(60));
        assert_eq!(files.file_count, Some(5));
        assert_eq!(files.file_packets, Some(7));
        let stop = files.stop_at;
        assert_eq!(
            (stop.files, stop.seconds, stop.packets),
            (Some(9), Some(3), Some(8))
        );
        for wrong in [
            &["-b", "interval:5"][..],
            &["-b", "filesize:1"],
            &["-b", "filesize:1000", "-C", "1MB"],
            &["-a", "files:3"],
            &["-a", "filesize:1000", "-C", "1MB"],
            &["-a", "packets:0"],
        ] {
            let line = [&["-w", "f"], wrong].concat();
            assert!(parse(&line).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn names_and_flags_choose_format_and_compression() {
        let of = |words: &[&str]| {
            let files = parse(words).unwrap();
            (files.format(), files.compression().map(Compression::ending))
        };
        assert_eq!(of(&["-w", "a.pcapng"]), (Format::Pcapng, None));
        assert_eq!(of(&["-w", "a.pcap"]), (Format::Pcap, None));
        assert_eq!(of(&["-w", "a.pcap.gz"]), (Format::Pcap, Some(".gz")));
        assert_eq!(
            of(&["-w", "a", "--compress", "zstd:9"]),
            (Format::Pcapng, Some(".zst"))
        );
        assert_eq!(
            of(&["-w", "a.pcap.zst", "-F", "pcapng"]),
            (Format::Pcapng, Some(".zst"))
        );
        for wrong in ["lz4", "zstd:0", "zstd:20", "gzip:10", "gzip:"] {
            assert!(parse(&["-w", "a", "--compress", wrong]).is_err(), "{wrong}");
        }
        assert!(parse(&["-w", "a.gz", "--compress", "zstd"]).is_err());
    }

    #[test]
    fn direct_io_needs_a_file_without_compression() {
        assert!(parse(&["-w", "a", "--direct-io"]).unwrap().direct_io);
        for wrong in [
            &["-w", "-"][..],
            &["-w", "a.gz"],
            &["-w", "a", "--compress", "zstd"],
        ] {
            let message = parse(&[wrong, &["--direct-io"]].concat()).unwrap_err();
            assert!(message.contains("--direct-io"), "{message}");
        }
    }

    #[test]
    fn a_disk_budget_makes_a_ring_of_ten_files() {
        let files = parse(&["-w", "a", "--max-total", "10GB"]).unwrap();
        assert_eq!(
            (files.file_size, files.is_ring()),
            (Some(1_000_000_000), true)
        );
        let single = parse(&["-w", "a", "--max-total", "10GB", "--at-limit", "stop"]).unwrap();
        assert!(!single.is_series());
        assert!(parse(&["-w", "a", "--min-free", "5%"]).is_err());
        assert!(parse(&["-w", "-", "--min-free", "5%", "--at-limit", "stop"]).is_err());
    }
}
