// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of the screen: columns of fixed width, short numbers, colours by meaning.

use std::iter::once;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ringtap_ipc::environment;

use crate::report::{as_f64, rounded};

/// Terminal width from which the [`Column::wide`] columns are shown.
const WIDE: usize = 96;

/// Emphasis of a text, by colour or style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Emphasis {
    #[default]
    Plain,
    Head,
    /// A past or threatening loss.
    Warn,
    /// A loss that happens now.
    Bad,
}

/// Styles of the emphases on this terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    pub(super) colours: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Column<'a> {
    head: &'a str,
    width: usize,
    is_left: bool,
    is_wide: bool,
}

/// A text and its emphasis.
pub(super) type TableCell = (String, Emphasis);

impl<'a> Column<'a> {
    /// A column of numbers.
    pub(super) const fn right(head: &'a str, width: usize) -> Self {
        Column {
            head,
            width,
            is_left: false,
            is_wide: false,
        }
    }

    /// A column of texts.
    pub(super) const fn left(head: &'a str, width: usize) -> Self {
        Column {
            is_left: true,
            ..Column::right(head, width)
        }
    }

    /// A column of numbers that only wide terminals show.
    pub(super) const fn wide(head: &'a str, width: usize) -> Self {
        Column {
            is_wide: true,
            ..Column::right(head, width)
        }
    }

    fn padded(&self, text: &str) -> String {
        let width = self.width;
        // Readers choose their names, which may contain control characters.
        let clean = |c: char| match c {
            ' '..='~' => c,
            _ => '?',
        };
        let mut text: String = text.chars().map(clean).collect();
        if text.len() > width {
            text.truncate(width.saturating_sub(1));
            text.push('~');
        }
        if self.is_left {
            format!("{text:<width$}")
        } else {
            format!("{text:>width$}")
        }
    }
}

impl Palette {
    /// With colours, unless the environment has a non-empty NO_COLOR.
    pub(super) fn of_environment() -> Self {
        let unwanted = environment::variable("NO_COLOR").is_some_and(|value| !value.is_empty());
        Palette { colours: !unwanted }
    }

    fn style(self, emphasis: Emphasis) -> Style {
        let style = Style::new();
        match (emphasis, self.colours) {
            (Emphasis::Plain, _) | (Emphasis::Warn, false) => style,
            (Emphasis::Head, _) => style.add_modifier(Modifier::BOLD),
            (Emphasis::Warn, true) => style.fg(Color::Yellow),
            (Emphasis::Bad, true) => style.fg(Color::Red),
            (Emphasis::Bad, false) => style.add_modifier(Modifier::REVERSED),
        }
    }

    /// One line of text.
    pub(super) fn line(self, text: impl Into<String>, emphasis: Emphasis) -> Line<'static> {
        Line::from(Span::styled(text.into(), self.style(emphasis)))
    }

    /// A table of this width with headings; the first column takes the remaining width.
    pub(super) fn table(
        self,
        width: usize,
        first: &str,
        columns: &[Column<'_>],
        rows: impl IntoIterator<Item = Vec<TableCell>>,
    ) -> Vec<Line<'static>> {
        let shown = |column: &Column<'_>| !column.is_wide || width >= WIDE;
        let others = columns.iter().filter(|column| shown(column));
        let fixed: usize = others.map(|column| column.width + 1).sum();
        let first = Column::left(first, width.saturating_sub(fixed).max(8));
        let columns: Vec<_> = once(&first).chain(columns).collect();
        let line = |cells: Vec<TableCell>| {
            let mut spans = Vec::new();
            for (column, (text, emphasis)) in columns.iter().zip(cells) {
                if shown(column) {
                    spans.push(Span::styled(column.padded(&text), self.style(emphasis)));
                    spans.push(Span::raw(" "));
                }
            }
            spans.pop();
            Line::from(spans)
        };
        let head = |column: &&Column<'_>| (column.head.to_owned(), Emphasis::Head);
        let heads = columns.iter().map(head).collect();
        once(heads).chain(rows).map(line).collect()
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

/// Emphasis for a loss counter and its rate.
pub(super) fn loss_emphasis(lost: u64, rate: Option<f64>) -> Emphasis {
    match rate {
        Some(rate) if rate > 0.0 => Emphasis::Bad,
        _ if lost > 0 => Emphasis::Warn,
        _ => Emphasis::Plain,
    }
}
