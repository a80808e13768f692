// SPDX-License-Identifier: MIT OR Apache-2.0
//! Criteria of dumpcap: `-b` for the next file, `-a` for the end.

use std::str::FromStr;

use super::options::{FileOptions, file_size};
use crate::UsageError;

/// One criterion with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Criterion {
    /// `duration:SECONDS`.
    Duration(u32),
    /// `filesize:KB`, in bytes.
    FileSize(u64),
    /// `files:N`.
    Files(u32),
    /// `packets:N`.
    Packets(u64),
}

impl FromStr for Criterion {
    type Err = String;

    /// A size is in units of 1000 bytes, or has a unit.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let count = || match value.parse() {
            Ok(count @ 1..) => Ok(count),
            _ => Err(format!("{name}: expected a whole number above 0")),
        };
        let small = || u32::try_from(count()?).map_err(|_| format!("{name}: is too large"));
        match name {
            "duration" => Ok(Self::Duration(small()?)),
            "files" => Ok(Self::Files(small()?)),
            "packets" => Ok(Self::Packets(count()?)),
            "filesize" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                file_size(&format!("{value}kB")).map(Self::FileSize)
            }
            "filesize" => file_size(value).map(Self::FileSize),
            _ => Err("expected duration:SECONDS, filesize:KB, files:N or packets:N".to_owned()),
        }
    }
}

impl Criterion {
    /// Makes it the criterion for the next file.
    pub(super) fn begins_file(self, options: &mut FileOptions) -> Result<(), UsageError> {
        match self {
            Self::Duration(seconds) => set(&mut options.file_seconds, seconds, "duration, -G"),
            Self::FileSize(bytes) => set(&mut options.file_size, bytes, "filesize, -C"),
            Self::Files(count) => set(&mut options.file_count, count, "files, -W"),
            Self::Packets(count) => set(&mut options.file_packets, count, "packets"),
        }
    }
}

/// When recording stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StopAt {
    pub(crate) seconds: Option<u32>,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) files: Option<u32>,
    pub(crate) packets: Option<u64>,
}

impl StopAt {
    pub(super) fn add(&mut self, criterion: Criterion) -> Result<(), UsageError> {
        match criterion {
            Criterion::Duration(seconds) => set(&mut self.seconds, seconds, "duration"),
            Criterion::FileSize(bytes) => set(&mut self.size_bytes, bytes, "filesize"),
            Criterion::Files(count) => set(&mut self.files, count, "files"),
            Criterion::Packets(count) => set(&mut self.packets, count, "packets"),
        }
    }
}

fn set<T>(place: &mut Option<T>, value: T, names: &str) -> Result<(), UsageError> {
    match place.replace(value) {
        Some(_) => Err(UsageError(format!("{names}: is given twice"))),
        None => Ok(()),
    }
}
