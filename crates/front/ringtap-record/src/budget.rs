// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of the disk space that a series of files may use.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ringtap_device::Size;

/// Space that has to stay free on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeSpace {
    /// A number of bytes.
    Bytes(u64),
    /// A share of the whole file system, in percent.
    Percent(u8),
}

/// A text is not the space that has to stay free.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is neither a size such as 10GB nor 1% to 99%")]
pub struct SpaceError(String);

impl FromStr for FreeSpace {
    type Err = SpaceError;

    fn from_str(text: &str) -> Result<Self, SpaceError> {
        let percent = text.strip_suffix('%').map(str::parse);
        match (percent, text.parse()) {
            (Some(Ok(percent @ 1..=99)), _) => Ok(Self::Percent(percent)),
            (None, Ok(Size(bytes))) => Ok(Self::Bytes(bytes)),
            _ => Err(SpaceError(text.to_owned())),
        }
    }
}

impl fmt::Display for FreeSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{}", Size(*bytes)),
            Self::Percent(percent) => write!(f, "{percent} %"),
        }
    }
}

/// Action of a recorder whose files have used up their space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum AtLimit {
    /// Delete the oldest files of the series.
    #[default]
    Delete,
    /// Stop recording.
    Stop,
}

/// The limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    pub(crate) max_bytes: Option<u64>,
    pub(crate) free: Option<FreeSpace>,
    pub(crate) folder: PathBuf,
}

/// Size of a file system and what is free, in bytes.
#[derive(Clone, Copy, Debug)]
struct Disk {
    size: u64,
    free: u64,
}

impl Disk {
    fn for_folder(folder: &Path) -> io::Result<Self> {
        let found = rustix::fs::statvfs(folder)?;
        Ok(Self {
            size: found.f_blocks.saturating_mul(found.f_frsize),
            free: found.f_bavail.saturating_mul(found.f_frsize),
        })
    }
}

impl Budget {
    /// Bytes that have to be deleted from files of `used` bytes before they grow by `more`.
    pub(crate) fn excess(&self, used: u64, more: u64) -> io::Result<u64> {
        let most = self.max_bytes.unwrap_or(u64::MAX);
        let own = used.saturating_add(more).saturating_sub(most);
        let Some(free) = self.free else {
            return Ok(own);
        };
        let disk = Disk::for_folder(&self.folder)?;
        Ok(own.max(missing(free, disk, more)))
    }
}

/// Bytes by which the disk has less room than it has to keep after `more` further ones.
fn missing(free: FreeSpace, disk: Disk, more: u64) -> u64 {
    let wanted = match free {
        FreeSpace::Bytes(bytes) => bytes,
        FreeSpace::Percent(percent) => disk.size / 100 * u64::from(percent),
    };
    wanted.saturating_add(more).saturating_sub(disk.free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_to_keep_is_a_size_or_a_share() {
        assert_eq!("10GB".parse(), Ok(FreeSpace::Bytes(10_000_000_000)));
        assert_eq!("5%".parse(), Ok(FreeSpace::Percent(5)));
        for wrong in ["", "0%", "100%", "x%", "5 per cent"] {
            assert!(wrong.parse::<FreeSpace>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_larger_of_both_limits_counts() {
        let disk = Disk {
            size: 1_000,
            free: 80,
        };
        assert_eq!(missing(FreeSpace::Percent(10), disk, 0), 20);
        assert_eq!(missing(FreeSpace::Percent(10), disk, 5), 25);
        assert_eq!(missing(FreeSpace::Bytes(80), disk, 0), 0);
        let budget = Budget {
            max_bytes: Some(100),
            ..Budget::default()
        };
        assert_eq!(budget.excess(90, 30).unwrap(), 20);
        assert_eq!(budget.excess(100, 0).unwrap(), 0);
    }
}
