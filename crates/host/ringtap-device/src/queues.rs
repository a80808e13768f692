// SPDX-License-Identifier: MIT OR Apache-2.0
//! A choice of receive queues: `@0`, `@1-3,5`.
//!
//! Invariants
//! - Ranges are in order, do not overlap and do not touch: one choice has one text.

use std::{fmt, ops::RangeInclusive};

/// Receive queues to capture from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Queues {
    /// All queues, also those that appear later.
    #[default]
    All,
    /// These ranges, at least one.
    Chosen(Vec<RangeInclusive<u16>>),
}

impl Queues {
    /// A choice; ranges may overlap and come in any order. No range chooses all.
    #[must_use]
    pub fn chosen(ranges: impl IntoIterator<Item = RangeInclusive<u16>>) -> Self {
        let mut ranges: Vec<_> = ranges
            .into_iter()
            .filter(|range| !range.is_empty())
            .collect();
        ranges.sort_by_key(|range| *range.start());
        let mut merged: Vec<RangeInclusive<u16>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if *range.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => merged.push(range),
            }
        }
        if merged.is_empty() {
            Self::All
        } else {
            Self::Chosen(merged)
        }
    }

    /// Whether a queue is chosen.
    #[must_use]
    pub fn contains(&self, queue: u16) -> bool {
        match self {
            Self::All => true,
            Self::Chosen(ranges) => ranges.iter().any(|range| range.contains(&queue)),
        }
    }

    /// The highest queue that was chosen by number.
    #[must_use]
    pub fn highest(&self) -> Option<u16> {
        match self {
            Self::All => None,
            Self::Chosen(ranges) => ranges.last().map(|range| *range.end()),
        }
    }
}

impl fmt::Display for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Chosen(ranges) = self else {
            return Ok(());
        };
        for (number, range) in ranges.iter().enumerate() {
            f.write_str(if number == 0 { "@" } else { "," })?;
            if range.start() == range.end() {
                write!(f, "{}", range.start())?
            } else {
                write!(f, "{}-{}", range.start(), range.end())?
            }
        }
        Ok(())
    }
}
