// SPDX-License-Identifier: MIT OR Apache-2.0
//! Criteria of dumpcap: `-b` for the next file, `-a` for the end.

use std::str::FromStr;
use std::time::Duration;

use ringtap_record::{RecordOptions, StopAt, file_size};

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

fn refuse<T>(why: String) -> Result<T, UsageError> {
    Err(UsageError(why))
}

impl FromStr for Criterion {
    type Err = UsageError;

    /// A size is in units of 1000 bytes, or has a unit.
    fn from_str(text: &str) -> Result<Self, UsageError> {
        let file_size = |text: &str| match file_size(text) {
            Ok(bytes) => Ok(Self::FileSize(bytes)),
            Err(error) => refuse(error.to_string()),
        };
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let count = || match value.parse() {
            Ok(count @ 1..) => Ok(count),
            _ => refuse(format!("{name}: expected a whole number above 0")),
        };
        let small = || match u32::try_from(count()?) {
            Ok(small) => Ok(small),
            Err(_) => refuse(format!("{name}: is too large")),
        };
        match name {
            "duration" => Ok(Self::Duration(small()?)),
            "files" => Ok(Self::Files(small()?)),
            "packets" => Ok(Self::Packets(count()?)),
            "filesize" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                file_size(&format!("{value}kB"))
            }
            "filesize" => file_size(value),
            _ => refuse("expected duration:SECONDS, filesize:KB, files:N or packets:N".to_owned()),
        }
    }
}

impl Criterion {
    /// Makes it the criterion for the next file.
    pub(super) fn begins_file(self, options: &mut RecordOptions) -> Result<(), UsageError> {
        match self {
            Self::Duration(seconds) => set(&mut options.file_seconds, seconds, "duration, -G"),
            Self::FileSize(bytes) => set(&mut options.file_size, bytes, "filesize, -C"),
            Self::Files(count) => set(&mut options.file_count, count, "files, -W"),
            Self::Packets(count) => set(&mut options.file_packets, count, "packets"),
        }
    }

    /// Makes it a criterion for the end.
    pub(super) fn stops(self, at: &mut StopAt) -> Result<(), UsageError> {
        match self {
            Self::Duration(seconds) => {
                let duration = Duration::from_secs(seconds.into());
                set(&mut at.duration, duration, "duration")
            }
            Self::FileSize(bytes) => set(&mut at.size_bytes, bytes, "filesize"),
            Self::Files(count) => set(&mut at.files, count, "files"),
            Self::Packets(count) => set(&mut at.packets, count, "packets"),
        }
    }
}

fn set<T>(place: &mut Option<T>, value: T, names: &str) -> Result<(), UsageError> {
    match place.replace(value) {
        Some(_) => Err(UsageError(format!("{names}: is given twice"))),
        None => Ok(()),
    }
}
