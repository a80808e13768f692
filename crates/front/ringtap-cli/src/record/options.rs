// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file options of the command line, named as in tcpdump and dumpcap.

use clap::Args;
use ringtap_device::Size;

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

    /// Keep only the COUNT newest files: a ring; needs -C or -G.
    #[arg(short = 'W', long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) file_count: Option<u32>,
}

/// Smaller sizes are refused: the user probably forgot the unit. In bytes.
const SMALLEST_FILE: u64 = 10_000;

fn file_size(given: &str) -> Result<u64, String> {
    let size = Size::with_any_unit(given).map(|size| size.0);
    let size = size.ok_or("use bytes with a unit, e.g. 500kB, 100MB or 1GiB")?;
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
        assert_eq!(file_size("100mb"), Ok(100_000_000));
        assert_eq!(file_size("1GiB"), Ok(1 << 30));
        assert_eq!(file_size("20000"), Ok(20_000));
        for wrong in ["", "MB", "1.5MB", "-1MB", "10 parsecs", "99999999999TB"] {
            assert!(file_size(wrong).is_err(), "{wrong}");
        }
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
