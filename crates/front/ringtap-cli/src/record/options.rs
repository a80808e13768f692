// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file options of the command line, named as in tcpdump and dumpcap.

use std::io::{self, IsTerminal as _};

use clap::Args;
use ringtap_device::{Size, SizeError};

use crate::UsageError;

/// The files to write, and when a new one begins.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Files")]
pub(crate) struct FileOptions {
    /// Write pcapng to FILE; "-" is standard output.
    ///
    /// With -C or -G files are numbered and dated, e.g. FILE_00001_20261231235959.pcapng,
    /// unless FILE has strftime fields, e.g. trace-%H%M%S.pcapng.
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub(crate) file: String,

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

    /// Write packets to the file as soon as no other packet waits, not once a second.
    #[arg(short = 'U', long)]
    pub(crate) packet_buffered: bool,

    /// Run `COMMAND FILE` in a shell for each closed file, one after the other, e.g. `zstd -q --rm`.
    #[arg(short = 'z', long, value_name = "COMMAND")]
    pub(crate) when_closed: Option<String>,
}

impl FileOptions {
    /// Whether there can be several files.
    pub(crate) fn is_series(&self) -> bool {
        self.file_size.is_some() || self.file_seconds.is_some()
    }

    /// Refuses options that contradict each other.
    pub(crate) fn check(&self) -> Result<(), UsageError> {
        let wrong = match self.file.as_str() {
            _ if self.file_count.is_some() && !self.is_series() => {
                "-W keeps the newest files of a series: add -C SIZE or -G SECONDS"
            }
            "-" if self.is_series() => {
                "standard output cannot be split into files: give a file name with -w"
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
            _ => return Ok(()),
        };
        Err(UsageError(wrong.to_owned()))
    }
}

/// Smaller sizes are refused: the user probably forgot the unit. In bytes.
const SMALLEST_FILE: u64 = 10_000;

fn file_size(given: &str) -> Result<u64, String> {
    let Size(size) = given
        .parse()
        .map_err(|error: SizeError| error.to_string())?;
    match size < SMALLEST_FILE {
        true => Err(format!(
            "{size} bytes are too few for a file (at least 10kB): {size}MB?"
        )),
        false => Ok(size),
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
        let line = Line::try_parse_from(["x", "-w", "-", "-C", "1MB", "-G", "60", "-W", "5"]);
        let files = line.unwrap_or_else(|error| panic!("{error}")).files;
        assert_eq!(files.file, "-");
        assert_eq!(files.file_size, Some(1_000_000));
        assert_eq!(files.file_seconds, Some(60));
        assert_eq!(files.file_count, Some(5));
        assert!(Line::try_parse_from(["x", "-w", "f", "-G", "0"]).is_err());
        assert!(Line::try_parse_from(["x", "-C", "1MB"]).is_err());
    }
}
