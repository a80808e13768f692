// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion control: when capture of a lane pauses for its readers.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Free chunks of a lane, in percent, at which capture pauses because readers cannot keep up, and at
/// which it resumes (Ksensor's congestion control). In a lane with readers of the policy "block", chunks
/// that none of them holds count as free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Congestion {
    /// Capture pauses below this percentage.
    pub low_percent: u8,
    /// Capture resumes from this percentage on.
    pub high_percent: u8,
}

/// Why a text is no [`Congestion`].
#[derive(Debug, thiserror::Error)]
#[error("expected LOW:HIGH, percent of the pool that is free, like 10:30")]
pub struct CongestionError;

impl FromStr for Congestion {
    type Err = CongestionError;

    fn from_str(text: &str) -> Result<Self, CongestionError> {
        let percent = |text: &str| text.trim_end_matches('%').parse::<u8>().ok();
        let marks = text
            .split_once(':')
            .and_then(|(low, high)| Some((percent(low)?, percent(high)?)));
        let marks = marks.filter(|(low, high)| low <= high && *high <= 100);
        let (low_percent, high_percent) = marks.ok_or(CongestionError)?;
        Ok(Congestion {
            low_percent,
            high_percent,
        })
    }
}

impl Congestion {
    /// Whether to pause a lane with this percentage of free chunks; `is_paused` is its present state.
    pub fn pauses(self, free_percent: u64, is_paused: bool) -> bool {
        let least = if is_paused {
            self.high_percent
        } else {
            self.low_percent
        };
        free_percent < u64::from(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_congestion_are_two_percentages() {
        let marks = "10:30%".parse::<Congestion>().unwrap();
        assert_eq!((marks.low_percent, marks.high_percent), (10, 30));
        for bad in ["30:10", "10", "10:101", "off"] {
            assert!(bad.parse::<Congestion>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_lane_pauses_below_the_low_mark_and_continues_at_the_high_one() {
        let congestion = Congestion {
            low_percent: 10,
            high_percent: 50,
        };
        let pauses = [9, 10, 49, 50].map(|free| {
            let [running, paused] = [false, true].map(|is| congestion.pauses(free, is));
            (running, paused)
        });
        let expected = [(true, true), (false, true), (false, true), (false, false)];
        assert_eq!(pauses, expected);
    }
}
