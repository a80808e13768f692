// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file options of the command line, as users of tcpdump and dumpcap know them.
#![forbid(unsafe_code)]

use std::str::FromStr;

use clap::Args;

/// Where packets go, and when a new file begins.
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

/// Smaller files are a mistake in the unit.
const SMALLEST_FILE: u64 = 10_000;

const UNITS: [(&str, u64); 10] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
    ("", 1),
];

fn file_size(given: &str) -> Result<u64, String> {
    let digits = given
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(given.len());
    let (number, unit) = given.split_at(digits);
    let factor = UNITS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()));
    let size = factor.and_then(|(_, factor)| u64::from_str(number).ok()?.checked_mul(*factor));
    match size {
        None => Err("use bytes with a unit, e.g. 500kB, 100MB or 1GiB".to_owned()),
        Some(size) if size < SMALLEST_FILE => Err(format!(
            "{size} bytes are too few for a file (at least 10kB): {number}MB?"
        )),
        Some(size) => Ok(size),
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
