// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables and lines on the screen: columns of fixed width, colours by meaning.

use std::iter::once;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ringtap_explain::tables::{Column, Emphasis, StatusTable};
use ringtap_ipc::environment;

/// Terminal width from which the wide columns are shown.
const WIDE: usize = 96;

/// Styles of the emphases on this terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    pub(super) colours: bool,
}

impl Palette {
    /// With colours, unless the environment has a non-empty NO_COLOR.
    pub(super) fn from_environment() -> Self {
        let unwanted = environment::variable("NO_COLOR").is_some_and(|value| !value.is_empty());
        Palette { colours: !unwanted }
    }

    fn style(self, emphasis: Emphasis) -> Style {
        let style = Style::new();
        match (emphasis, self.colours) {
            (Emphasis::Plain, _) | (Emphasis::Warn, false) => style,
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
    pub(super) fn table(self, width: usize, table: StatusTable) -> Vec<Line<'static>> {
        let shown = |column: &&Column| !column.is_wide || width >= WIDE;
        let others = table.columns.iter().filter(shown);
        let fixed: usize = others.map(|column| column.width + 1).sum();
        let first = Column {
            head: table.first,
            width: width.saturating_sub(fixed).max(8),
            is_left: true,
            is_wide: false,
        };
        let columns: Vec<_> = once(&first).chain(table.columns).collect();
        let line = |cells: Vec<(String, Style)>| {
            let mut spans = Vec::new();
            for (column, (text, style)) in columns.iter().zip(cells) {
                if shown(column) {
                    spans.push(Span::styled(padded(column, &text), style));
                    spans.push(Span::raw(" "));
                }
            }
            spans.pop();
            Line::from(spans)
        };
        let heads = columns.iter().map(|column| (column.head.to_owned(), HEAD));
        let heads = line(heads.collect());
        let rows = table.rows.into_iter().map(|cells| {
            let styled = cells
                .into_iter()
                .map(|(text, emphasis)| (text, self.style(emphasis)));
            line(styled.collect())
        });
        once(heads).chain(rows).collect()
    }
}

/// Style of headings.
pub(super) const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);

fn padded(column: &Column, text: &str) -> String {
    let width = column.width;
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
    if column.is_left {
        format!("{text:<width$}")
    } else {
        format!("{text:>width$}")
    }
}
