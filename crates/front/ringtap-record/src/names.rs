// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names the files of a rotating series and chooses files to delete; no I/O.
//!
//! Invariants
//! - Two successive files have different names.
//! - A file that the ring deletes is never younger than one that it keeps.

use std::collections::VecDeque;

use jiff::{Timestamp, fmt::strtime, tz::TimeZone};
use ringtap_pool::number::to_usize;

use crate::compress::Compression;
use crate::error::WriteError;

/// Names the files of a series.
pub(crate) struct Names {
    pattern: String,
    kind: NameKind,
    zone: TimeZone,
    number: u32,
    /// The last name made from a time, and how many successive files had it.
    stamped: (String, u32),
}

enum NameKind {
    /// One file only.
    Single,
    /// `NAME_00001_20261231235959.pcapng`.
    Numbered,
    /// `strftime` fields in the name.
    Stamped,
}

impl Names {
    /// Names for a single file, or for a series of them.
    pub(crate) fn new(pattern: &str, series: bool, zone: TimeZone) -> Self {
        let kind = if !series {
            NameKind::Single
        } else if pattern.contains('%') {
            NameKind::Stamped
        } else {
            NameKind::Numbered
        };
        Self {
            pattern: pattern.to_owned(),
            kind,
            zone,
            number: 0,
            stamped: (String::new(), 0),
        }
    }

    /// The name of the file that is opened at `time_ns`.
    pub(crate) fn next(&mut self, time_ns: u64) -> Result<String, WriteError> {
        match self.kind {
            NameKind::Single => Ok(self.pattern.clone()),
            NameKind::Numbered => {
                self.number += 1;
                let (stem, extension) = split_extension(&self.pattern);
                let stamp = self.format("%Y%m%d%H%M%S", time_ns)?;
                Ok(format!("{stem}_{:05}_{stamp}{extension}", self.number))
            }
            NameKind::Stamped => {
                let name = self.format(&self.pattern, time_ns)?;
                if self.stamped.0 != name {
                    self.stamped = (name.clone(), 1);
                    return Ok(name);
                }
                // The name's time fields change more slowly than the files.
                self.stamped.1 += 1;
                let (stem, extension) = split_extension(&name);
                Ok(format!("{stem}_{:05}{extension}", self.stamped.1))
            }
        }
    }

    /// Whether this series, now or in an earlier run, can have made a file of this name (without folder).
    pub(crate) fn is_of_series(&self, name: &str) -> bool {
        let pattern = self.pattern.rsplit('/').next().unwrap_or_default();
        let digits = |text: &str, count| {
            text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        match self.kind {
            NameKind::Single => false,
            NameKind::Numbered => {
                let (stem, extension) = split_extension(pattern);
                let rest = name
                    .strip_prefix(stem)
                    .and_then(|rest| rest.strip_suffix(extension));
                let parts = rest.and_then(|rest| rest.strip_prefix('_')?.split_once('_'));
                parts.is_some_and(|(number, stamp)| digits(number, 5) && digits(stamp, 14))
            }
            NameKind::Stamped => {
                let (stem, extension) = split_extension(name);
                let first = match stem.rsplit_once('_') {
                    Some((stem, number)) if digits(number, 5) => format!("{stem}{extension}"),
                    _ => name.to_owned(),
                };
                let is_made = |name: &str| strtime::parse(pattern, name).is_ok();
                is_made(name) || is_made(&first)
            }
        }
    }

    fn format(&self, pattern: &str, time_ns: u64) -> Result<String, WriteError> {
        let time = Timestamp::from_nanosecond(i128::from(time_ns)).unwrap_or(Timestamp::MAX);
        let local = time.to_zoned(self.zone.clone());
        strtime::format(pattern, &local).map_err(|error| WriteError::Pattern {
            pattern: pattern.to_owned(),
            reason: error.to_string(),
        })
    }
}

/// Splits `dir/name.pcapng` into `dir/name` and `.pcapng`, `name.pcapng.zst` into `name` and `.pcapng.zst`.
fn split_extension(path: &str) -> (&str, &str) {
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    let plain = match Compression::from_file_name(path) {
        Some(method) => path.len() - method.ending().len(),
        None => path.len(),
    };
    let dot = path.get(name..plain).and_then(|plain| plain.rfind('.'));
    match dot.or_else(|| path[name..].rfind('.')) {
        Some(dot) if dot > 0 => path.split_at(name + dot),
        _ => (path, ""),
    }
}

/// The files of a ring, oldest first; the last one is open.
#[derive(Default)]
pub(crate) struct FileRing {
    /// Names with the sizes of closed files, in bytes.
    kept: VecDeque<(String, u64)>,
}

impl FileRing {
    /// A ring with these closed files, oldest first.
    pub(crate) fn with(files: impl IntoIterator<Item = (String, u64)>) -> Self {
        FileRing {
            kept: files.into_iter().collect(),
        }
    }

    /// Files to delete before `next` is created, so that at most `count` exist.
    pub(crate) fn make_room(&mut self, next: &str, count: u32) -> Vec<String> {
        // A repeated name replaces its file.
        self.kept.retain(|(kept, _)| kept != next);
        let count = to_usize(count);
        let surplus = (self.kept.len() + 1).saturating_sub(count);
        let gone = self.kept.drain(..surplus).map(|(name, _)| name).collect();
        self.kept.push_back((next.to_owned(), 0));
        gone
    }

    /// Closes the open file with this size.
    pub(crate) fn close(&mut self, size_bytes: u64) {
        if let Some((_, size)) = self.kept.back_mut() {
            *size = size_bytes;
        }
    }

    /// Sum of the sizes of closed files.
    pub(crate) fn closed_bytes(&self) -> u64 {
        self.kept.iter().map(|(_, size)| size).sum()
    }

    /// Takes the oldest file out, to delete it; `None` if only the open one is left.
    pub(crate) fn oldest_closed(&mut self) -> Option<(String, u64)> {
        match self.kept.len() {
            0 | 1 => None,
            _ => self.kept.pop_front(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON_NS: u64 = 1_700_000_000_000_000_000; // 2023-11-14 22:13:20 UTC
    const MINUTE_NS: u64 = 60_000_000_000;

    fn names(pattern: &str, series: bool) -> Names {
        Names::new(pattern, series, TimeZone::UTC)
    }

    #[test]
    fn a_single_file_keeps_its_name_even_with_a_percent_sign() {
        let name = names("50%.pcapng", false).next(NOON_NS).unwrap();
        assert_eq!(name, "50%.pcapng");
    }

    #[test]
    fn a_series_is_numbered_and_dated_as_by_dumpcap() {
        let mut series = names("dir.d/trace.pcapng", true);
        let first = series.next(NOON_NS).unwrap();
        assert_eq!(first, "dir.d/trace_00001_20231114221320.pcapng");
        let second = series.next(NOON_NS + MINUTE_NS).unwrap();
        assert_eq!(second, "dir.d/trace_00002_20231114221420.pcapng");
        let bare = names("dir.d/trace", true).next(NOON_NS).unwrap();
        assert_eq!(bare, "dir.d/trace_00001_20231114221320");
        let hidden = names("d/.trace", true).next(NOON_NS).unwrap();
        assert_eq!(hidden, "d/.trace_00001_20231114221320");
    }

    #[test]
    fn dates_are_local() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let name = Names::new("%H.pcapng", true, zone).next(NOON_NS).unwrap();
        assert_eq!(name, "00.pcapng");
    }

    #[test]
    fn a_stamp_that_did_not_change_gets_a_number() {
        let mut series = names("t-%H%M.pcapng", true);
        let given: Vec<_> = [0, 1, 2, MINUTE_NS]
            .map(|after| series.next(NOON_NS + after).unwrap())
            .into();
        assert_eq!(
            given,
            [
                "t-2213.pcapng",
                "t-2213_00002.pcapng",
                "t-2213_00003.pcapng",
                "t-2214.pcapng"
            ]
        );
    }

    #[test]
    fn files_of_earlier_runs_are_known_by_their_names() {
        let numbered = names("dir/trace.pcapng", true);
        assert!(numbered.is_of_series("trace_00007_20231114221320.pcapng"));
        let stamped = names("dir/t-%H%M.pcapng", true);
        assert!(stamped.is_of_series("t-2213.pcapng"));
        assert!(stamped.is_of_series("t-2213_00002.pcapng"));
        for others in [
            "trace.pcapng",
            "trace_00007.pcapng",
            "trace_00007_20231114221320.pcapng.gz",
            "trace_00007_2023111422132x.pcapng",
            "my-trace_00007_20231114221320.pcapng",
            "t-2513.pcapng",
            "t-backup.pcapng",
            "t-2213_2.pcapng",
        ] {
            assert!(
                !numbered.is_of_series(others) && !stamped.is_of_series(others),
                "{others}"
            );
        }
        assert!(!names("t.pcapng", false).is_of_series("t.pcapng"));
    }

    #[test]
    fn an_impossible_pattern_is_refused() {
        let error = names("t-%E.pcapng", true).next(NOON_NS).unwrap_err();
        assert!(matches!(error, WriteError::Pattern { .. }), "{error}");
    }

    #[test]
    fn a_ring_deletes_the_oldest_and_never_the_file_that_comes_again() {
        let mut ring = FileRing::default();
        assert!(ring.make_room("a", 2).is_empty());
        assert!(ring.make_room("b", 2).is_empty());
        assert_eq!(ring.make_room("c", 2), ["a"]);
        assert_eq!(ring.make_room("b", 2), [""; 0]);
        assert_eq!(ring.make_room("d", 2), ["c"]);
        ring.close(70);
        assert_eq!(
            (ring.closed_bytes(), ring.oldest_closed()),
            (70, Some(("b".into(), 0)))
        );
        assert_eq!(ring.oldest_closed(), None);
        assert_eq!(ring.make_room("e", 1), ["d"]);
    }
}
