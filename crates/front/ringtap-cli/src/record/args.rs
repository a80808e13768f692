// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of the files and events, named as in tcpdump and dumpcap.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use ringtap_device::{Size, SizeError};
use ringtap_record::{AtLimit, Compression, EventOptions, Format, FreeSpace, RecordOptions};

use super::criterion::Criterion;
use crate::reading::seconds;
use crate::{UsageError, completion};

/// The files to write, and when a new one begins.
#[derive(Args, Debug)]
#[command(next_help_heading = "Files")]
pub(crate) struct RecordFileArgs {
    /// Write to FILE: pcapng, or pcap if its name ends with .pcap; "-" is standard output.
    ///
    /// With .gz or .zst at its end, the file is compressed. The files of a series are numbered and dated, e.g.
    /// FILE_00001_20261231235959.pcapng, unless FILE has strftime fields, e.g. trace-%H%M%S.pcapng.
    #[arg(short = 'w', long = "write", value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: String,

    /// Format of the files: `pcapng`, or `pcap`, which has neither counters nor directions.
    #[arg(short = 'F', long, value_name = "FORMAT", value_parser = format,
          add = completion::words(&["pcapng", "pcap"]))]
    format: Option<Format>,

    /// Write pcap, as for dumpcap: the same as -F pcap.
    #[arg(short = 'P', conflicts_with = "format")]
    pcap: bool,

    /// Compress on threads of their own: `zstd` or `gzip`, with a level as in `zstd:9`.
    #[arg(long, value_name = "METHOD", add = completion::words(&["zstd", "gzip"]))]
    compress: Option<Compression>,

    /// Write past the kernel's page cache: for disks that are the limit, and to leave memory to other programs.
    #[arg(long)]
    direct_io: bool,

    /// Begin a new file when this one has SIZE bytes, e.g. 100MB or 1GiB.
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = file_size)]
    file_size: Option<u64>,

    /// Begin a new file after this many seconds.
    #[arg(short = 'G', long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    file_seconds: Option<u32>,

    /// Keep only the COUNT newest files, those of earlier runs included: a ring; needs -C or -G.
    ///
    /// Files of earlier runs are those in the same folder whose names FILE makes.
    #[arg(short = 'W', long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    file_count: Option<u32>,

    /// Begin a new file as dumpcap does: `filesize:KB`, `duration:SECONDS`, `packets:N`; keep `files:N`.
    #[arg(short = 'b', long = "ring-buffer", value_name = "CRITERION")]
    next_file: Vec<Criterion>,

    /// Stop as dumpcap does: `duration:SECONDS`, `filesize:KB`, `files:N`, `packets:N`.
    #[arg(short = 'a', long = "autostop", value_name = "CRITERION")]
    autostop: Vec<Criterion>,

    /// Bytes on disk that the files of the series may use, those of earlier runs included.
    ///
    /// Without -C a file has a tenth of them.
    #[arg(long, value_name = "SIZE", value_parser = file_size)]
    max_total: Option<u64>,

    /// Space to leave free on the disk, e.g. 10GB or 5%; checked once per --interval and for each new file.
    #[arg(long, value_name = "SPACE")]
    min_free: Option<FreeSpace>,

    /// What to do at --max-total and --min-free: delete the oldest files, or stop recording.
    #[arg(long, value_name = "WHAT", default_value = "delete", value_parser = at_limit())]
    at_limit: AtLimit,

    /// Write packets to the file as soon as no other packet waits, not once a second.
    #[arg(short = 'U', long)]
    packet_buffered: bool,

    /// Run `COMMAND FILE` in a shell for each closed file, one after the other, e.g. `rsync -t --remove-source-files`.
    #[arg(short = 'z', long, value_name = "COMMAND")]
    when_closed: Option<String>,
}

impl RecordFileArgs {
    /// The options, with dumpcap's criteria in their places.
    ///
    /// # Errors
    ///
    /// Options contradict each other.
    pub(super) fn options(&self) -> Result<RecordOptions, UsageError> {
        let mut options = RecordOptions {
            format: self.format.or(self.pcap.then_some(Format::Pcap)),
            compress: self.compress,
            direct_io: self.direct_io,
            file_size: self.file_size,
            file_seconds: self.file_seconds,
            file_count: self.file_count,
            max_total: self.max_total,
            min_free: self.min_free,
            at_limit: self.at_limit,
            packet_buffered: self.packet_buffered,
            when_closed: self.when_closed.clone(),
            ..RecordOptions::to_file(&self.file)
        };
        for criterion in &self.next_file {
            criterion.begins_file(&mut options)?;
        }
        for criterion in &self.autostop {
            criterion.stops(&mut options.stop_at)?;
        }
        options
            .check()
            .map_err(|error| UsageError(error.to_string()))?;
        Ok(options)
    }
}

/// Which packets are recorded.
#[derive(Args, Debug)]
#[command(next_help_heading = "Events")]
pub(crate) struct EventArgs {
    /// Record only around events: from SECONDS before to --after seconds after each. SIGUSR2 is an event.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    before: Option<Duration>,

    /// Seconds to record after an event.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10", requires = "before")]
    after: Duration,

    /// Each packet that passes this filter is an event.
    #[arg(long, value_name = "FILTER", requires = "before")]
    trigger: Option<String>,

    /// Memory for the packets before an event; with less than they need, the window is shorter.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "256MiB",
        requires = "before"
    )]
    before_size: Size,
}

impl EventArgs {
    /// The events, if only they are recorded.
    pub(super) fn options(&self) -> Option<EventOptions> {
        self.before.map(|before| EventOptions {
            before,
            after: self.after,
            trigger: self.trigger.clone(),
            max_bytes: self.before_size.0,
        })
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

fn at_limit() -> impl TypedValueParser<Value = AtLimit> {
    PossibleValuesParser::new([
        PossibleValue::new("delete").help("Delete the oldest files of the series"),
        PossibleValue::new("stop").help("Stop recording"),
    ])
    .map(|word| match word.as_str() {
        "stop" => AtLimit::Stop,
        _ => AtLimit::Delete,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        files: RecordFileArgs,
    }

    fn parse(words: &[&str]) -> Result<RecordOptions, String> {
        let line = Line::try_parse_from([&["x"], words].concat());
        let files = line.map_err(|error| error.to_string())?.files;
        files.options().map_err(|error| error.to_string())
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
            (stop.files, stop.duration, stop.packets),
            (Some(9), Some(Duration::from_secs(3)), Some(8))
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
    fn format_and_compression_are_flags_too() {
        let files = parse(&["-w", "a", "--compress", "zstd:9", "-P"]).unwrap();
        let compress = Some(Compression::Zstd(9));
        assert_eq!((files.compress, files.format()), (compress, Format::Pcap));
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
    fn a_disk_budget_deletes_files_of_a_series() {
        let files = parse(&["-w", "a", "--max-total", "10GB"]).unwrap();
        let budget = (files.max_total, files.at_limit);
        assert_eq!(budget, (Some(10_000_000_000), AtLimit::Delete));
        assert!(parse(&["-w", "a", "--min-free", "5%"]).is_err());
        let stops = ["--min-free", "5%", "--at-limit", "stop"];
        assert!(parse(&[&["-w", "a"], &stops[..]].concat()).is_ok());
        assert!(parse(&[&["-w", "-"], &stops[..]].concat()).is_err());
    }
}
