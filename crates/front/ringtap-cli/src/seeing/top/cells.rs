// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells of the screen: texts of a fixed width, numbers of few digits, bars, colours with a meaning.
#![forbid(unsafe_code)]

use std::env;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::report::{as_f64, rounded};

/// What a colour means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mood {
    #[default]
    Plain,
    /// A heading.
    Head,
    /// It was bad, or is about to be.
    Warn,
    /// It is bad now.
    Bad,
}

/// How moods look on this terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    pub(super) colours: bool,
}

/// One cell.
pub(super) struct Cell {
    text: String,
    width: usize,
    left: bool,
    mood: Mood,
}

impl Palette {
    /// With colours, unless the user's environment says NO_COLOR.
    pub(super) fn of_environment() -> Self {
        let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Palette { colours: !unwanted }
    }

    pub(super) fn style(self, mood: Mood) -> Style {
        let style = Style::new();
        match (mood, self.colours) {
            (Mood::Plain, _) | (Mood::Warn, false) => style,
            (Mood::Head, _) => style.add_modifier(Modifier::BOLD),
            (Mood::Warn, true) => style.fg(Color::Yellow),
            (Mood::Bad, true) => style.fg(Color::Red),
            (Mood::Bad, false) => style.add_modifier(Modifier::REVERSED),
        }
    }

    /// A line of cells, one blank between them.
    pub(super) fn row(self, cells: impl IntoIterator<Item = Cell>) -> Line<'static> {
        let mut spans = Vec::new();
        for cell in cells {
            if !spans.is_empty() {
                spans.push(Span::raw(" "));
            }
            spans.push(Span::styled(cell.padded(), self.style(cell.mood)));
        }
        Line::from(spans)
    }

    /// One line of text.
    pub(super) fn line(self, text: impl Into<String>, mood: Mood) -> Line<'static> {
        Line::from(Span::styled(text.into(), self.style(mood)))
    }
}

impl Cell {
    /// A number, at the right.
    pub(super) fn right(text: impl Into<String>, width: usize) -> Self {
        Cell {
            text: text.into(),
            width,
            left: false,
            mood: Mood::Plain,
        }
    }

    /// A name, at the left.
    pub(super) fn left(text: impl Into<String>, width: usize) -> Self {
        Cell {
            left: true,
            ..Cell::right(text, width)
        }
    }

    pub(super) fn mood(self, mood: Mood) -> Self {
        Cell { mood, ..self }
    }

    fn padded(&self) -> String {
        let width = self.width;
        // What others call themselves may hold anything.
        let clean = |c: char| {
            if c.is_ascii_graphic() || c == ' ' {
                c
            } else {
                '?'
            }
        };
        let mut text: String = self.text.chars().map(clean).collect();
        if text.len() > width {
            text.truncate(width.saturating_sub(1));
            text.push('~');
        }
        match self.left {
            true => format!("{text:<width$}"),
            false => format!("{text:>width$}"),
        }
    }
}

/// A rate in at most five signs; `-` where there is none yet.
pub(super) fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate > 0.0 && rate < 9.95 => format!("{rate:.1}"),
        Some(rate) => short(rounded(rate)),
    }
}

/// A number in at most five signs: `999`, `1.23k`, `12.3k`, `123k`, `1.23M`.
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

/// `[#####     ]  52%`, 17 signs.
pub(super) fn bar(part: u32, whole: u32) -> String {
    let percent = percent(part, whole);
    let full = usize::try_from(percent / 10).unwrap_or(10).min(10);
    let (full, empty) = ("#".repeat(full), " ".repeat(10 - full));
    format!("[{full}{empty}] {percent:>3}%")
}

/// In percent, rounded up: 0 is nothing at all.
pub(super) fn percent(part: u32, whole: u32) -> u64 {
    (u64::from(part) * 100)
        .div_ceil(u64::from(whole).max(1))
        .min(100)
}

/// The mood of a counter of losses and of its rate.
pub(super) fn loss_mood(lost: u64, rate: Option<f64>) -> Mood {
    match rate {
        Some(rate) if rate > 0.0 => Mood::Bad,
        _ if lost > 0 => Mood::Warn,
        _ => Mood::Plain,
    }
}
