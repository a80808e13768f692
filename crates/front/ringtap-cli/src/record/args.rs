// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of the files and events, named as in tcpdump and dumpcap.

use std::fmt::Display;
use std::time::Duration;

use clap::{Args, Command};
use ringtap_device::Size;
use ringtap_record::{EventOptions, Format, RecordOptions};

use super::criterion::Criterion;
use crate::UsageError;
use crate::reading::seconds;

/// The files to write, when a new one begins, and when to stop.
#[derive(Args, Debug)]
#[command(next_help_heading = "Files")]
pub(crate) struct RecordFileArgs {
    #[command(flatten)]
    files: RecordOptions,

    /// Write pcap, as for dumpcap: the same as -F pcap.
    #[arg(short = 'P', conflicts_with = "format")]
    pcap: bool,

    /// Begin a new file as dumpcap does: `filesize:KB`, `duration:SECONDS`, `packets:N`; keep `files:N`.
    #[arg(short = 'b', long = "ring-buffer", value_name = "CRITERION")]
    next_file: Vec<Criterion>,

    /// Stop as dumpcap does: `duration:SECONDS`, `filesize:KB`, `files:N`, `packets:N`.
    #[arg(short = 'a', long = "autostop", value_name = "CRITERION")]
    autostop: Vec<Criterion>,
}

impl RecordFileArgs {
    /// The options, with dumpcap's criteria in their places.
    ///
    /// # Errors
    ///
    /// Options contradict each other.
    pub(super) fn options(&self) -> Result<RecordOptions, UsageError> {
        let mut options = self.files.clone();
        options.format = options.format.or(self.pcap.then_some(Format::Pcap));
        for criterion in &self.next_file {
            criterion.begins_file(&mut options)?;
        }
        for criterion in &self.autostop {
            criterion.stops(&mut options.stop_at)?;
        }
        let checked = options.check();
        checked.map_err(|error| UsageError(with_flags(error)))?;
        Ok(options)
    }
}

/// Options of a recorder that are no flags by these names, and the flags that set them.
const OTHER_FLAGS: [(&str, &str); 3] = [
    ("stop_at.files", "-a files"),
    ("stop_at.size_bytes", "-a filesize"),
    ("events.max_bytes", "--before-size"),
];

/// The message of a recorder, with flags in place of its options.
pub(super) fn with_flags(message: impl Display) -> String {
    let command = RecordOptions::augment_args(Command::new("record"));
    let flags = command.get_arguments().filter_map(|one| {
        let short = one.get_short().map(|letter| format!("-{letter}"));
        let flag = short.or_else(|| Some(format!("--{}", one.get_long()?)))?;
        Some((one.get_id().to_string(), flag))
    });
    let others = OTHER_FLAGS.map(|(option, flag)| (option.to_owned(), flag.to_owned()));
    flags
        .chain(others)
        .fold(message.to_string(), |text, (option, flag)| {
            text.replace(&format!("`{option}`"), &flag)
        })
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

#[cfg(test)]
mod tests {
    use clap::Parser;
    use ringtap_record::{AtLimit, Compression};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        files: RecordFileArgs,
    }

    fn parse(words: &[&str]) -> anyhow::Result<RecordOptions> {
        let line = Line::try_parse_from([&["x"], words].concat())?;
        Ok(line.files.options()?)
    }

    #[test]
    fn messages_of_the_recorder_name_flags() {
        let refused = parse(&["-w", "f", "-W", "5"]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "-W keeps the newest files of a series: add -C or -G"
        );
        let note = with_flags(ringtap_record::Note::ShortWindow {
            wanted: Duration::from_secs(2),
            held: Duration::from_secs(1),
        });
        assert!(note.ends_with("raise --before-size"), "{note}");
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
            let message = parse(&[wrong, &["--direct-io"]].concat())
                .unwrap_err()
                .to_string();
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
