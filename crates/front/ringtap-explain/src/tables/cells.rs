// SPDX-License-Identifier: MIT OR Apache-2.0
//! Columns, cells and short numbers of the tables.

use crate::text::{as_f64, rounded};

/// Emphasis of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Emphasis {
    /// None.
    #[default]
    Plain,
    /// A past or threatening loss.
    Warn,
    /// A loss that happens now.
    Bad,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading.
    pub head: &'static str,
    /// Characters.
    pub width: usize,
    /// Its texts begin at the left.
    pub is_left: bool,
    /// Only wide terminals have room for it.
    pub is_wide: bool,
}

/// A text and its emphasis.
pub type TableCell = (String, Emphasis);

/// A table of a hub's counters and their rates.
#[derive(Clone, Debug)]
pub struct StatusTable {
    /// Heading of the first column, which takes the remaining width.
    pub first: &'static str,
    /// The other columns.
    pub columns: &'static [Column],
    /// A cell for each column, the first included.
    pub rows: Vec<Vec<TableCell>>,
}

impl Column {
    /// A column of numbers.
    pub(super) const fn right(head: &'static str, width: usize) -> Self {
        Column {
            head,
            width,
            is_left: false,
            is_wide: false,
        }
    }

    /// A column of texts.
    pub(super) const fn left(head: &'static str, width: usize) -> Self {
        Column {
            is_left: true,
            ..Column::right(head, width)
        }
    }

    /// A column of numbers that only wide terminals show.
    pub(super) const fn wide(head: &'static str, width: usize) -> Self {
        Column {
            is_wide: true,
            ..Column::right(head, width)
        }
    }
}

/// A cell without emphasis.
pub(super) fn plain(text: impl Into<String>) -> TableCell {
    (text.into(), Emphasis::Plain)
}

/// A rate of at most five characters; `-` if there is none yet.
pub(super) fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate > 0.0 && rate < 9.95 => format!("{rate:.1}"),
        Some(rate) => short(rounded(rate)),
    }
}

/// A number of at most five characters: `999`, `1.23k`, `12.3k`, `123k`, `1.23M`.
pub(super) fn short(number: u64) -> String {
    if number < 1_000 {
        return number.to_string();
    }
    let mut value = as_f64(number);
    let mut unit = "";
    for next in ["k", "M", "G", "T", "P", "E"] {
        if value < 999.5 {
            break;
        }
        value /= 1_000.0;
        unit = next;
    }
    match value {
        _ if value < 9.995 => format!("{value:.2}{unit}"),
        _ if value < 99.95 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    }
}

/// `[#####     ]  52%`, 17 characters.
pub(super) fn bar(part: u32, whole: u32) -> String {
    let percent = percent(part, whole);
    let full: String = (1..=10)
        .filter(|tenth| tenth * 10 <= percent)
        .map(|_| '#')
        .collect();
    format!("[{full:<10}] {percent:>3}%")
}

/// A part in percent, rounded up: only 0 of something is 0 %.
pub(super) fn percent(part: u32, whole: u32) -> u64 {
    (u64::from(part) * 100)
        .div_ceil(u64::from(whole).max(1))
        .min(100)
}

/// Emphasis of a loss counter and its rate.
pub(super) fn loss_emphasis(lost: u64, rate: Option<f64>) -> Emphasis {
    match rate {
        Some(rate) if rate > 0.0 => Emphasis::Bad,
        _ if lost > 0 => Emphasis::Warn,
        _ => Emphasis::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_at_most_five_signs() {
        let shown = [
            0,
            999,
            1_000,
            9_999,
            99_949,
            99_999,
            999_499,
            999_999,
            u64::MAX,
        ]
        .map(short);
        assert_eq!(
            shown,
            [
                "0", "999", "1.00k", "10.0k", "99.9k", "100k", "999k", "1.00M", "18.4E"
            ]
        );
        assert_eq!(rate(Some(0.5)), "0.5");
        assert_eq!(rate(Some(0.0)), "0");
        assert_eq!(rate(None), "-");
        assert_eq!(bar(0, 0), "[          ]   0%");
        assert_eq!(bar(64, 64), "[##########] 100%");
    }
}
