// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text of man pages: escapes, lines that stay as they are, and sections of a document in Markdown.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Text without a meaning for roff.
pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Lines that stay as they are.
pub(super) fn verbatim(text: &str) -> String {
    // A line that begins with a dot or an apostrophe would be a command.
    let lines = text.lines().map(|line| format!("\\&{}\n", escaped(line)));
    format!(".nf\n{}.fi\n", lines.collect::<String>())
}

/// A list of words and their meanings.
pub(super) fn tagged<const N: usize>(list: [(&str, &str); N]) -> String {
    let items =
        list.map(|(word, meaning)| tag(&escaped(word), &escaped(&meaning.replace('`', ""))));
    items.concat()
}

fn tag(word: &str, meaning: &str) -> String {
    format!(".TP\n\\fB{word}\\fR\n\\&{meaning}\n")
}

/// The sections of a document below these headings of the second level.
pub(super) fn from_markdown(document: &str, headings: &[&str]) -> String {
    let sections = document.split("\n## ");
    let is_wanted = |section: &&str| {
        headings
            .iter()
            .any(|one| section.lines().next() == Some(one))
    };
    let wanted = sections.filter(is_wanted);
    wanted
        .map(|section| section_of(&format!("## {section}")))
        .collect()
}

/// What is being read.
#[derive(Default)]
struct Page {
    text: String,
    line: String,
    /// Titles of a table's columns, and the cells of the row.
    titles: Vec<String>,
    cells: Vec<String>,
}

fn section_of(markdown: &str) -> String {
    let mut page = Page::default();
    let mut is_code = false;
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => is_code = true,
            Event::Text(text) if is_code => page.line += &text,
            Event::Text(text) => page.line += &escaped(&text),
            Event::Code(text) => page.line += &format!("\\fB{}\\fR", escaped(&text)),
            Event::SoftBreak | Event::HardBreak => page.line.push(' '),
            Event::End(end) => {
                is_code = false;
                page.end(end);
            }
            _ => {}
        }
    }
    page.text
}

impl Page {
    /// Adds what has ended.
    fn end(&mut self, end: TagEnd) {
        let text = match end {
            TagEnd::Heading(level) => {
                let macro_name = if level as u8 <= 2 { "SH" } else { "SS" };
                format!(".{macro_name} \"{}\"\n", self.take().to_uppercase())
            }
            TagEnd::Paragraph => format!(".PP\n\\&{}\n", self.take()),
            TagEnd::Item => format!(".IP \\(bu 2\n\\&{}\n", self.take()),
            TagEnd::CodeBlock => {
                let code = self.take();
                format!(".PP\n{}", verbatim(&code))
            }
            TagEnd::TableCell => {
                let cell = self.take();
                self.cells.push(cell);
                return;
            }
            TagEnd::TableHead => {
                self.titles = std::mem::take(&mut self.cells);
                return;
            }
            TagEnd::TableRow => self.row(),
            _ => return,
        };
        self.text += &text;
    }

    fn take(&mut self) -> String {
        std::mem::take(&mut self.line).trim().to_owned()
    }

    /// A row: the first cell is the word, the others are its meaning.
    fn row(&mut self) -> String {
        let cells = std::mem::take(&mut self.cells);
        let mut cells = cells.into_iter().zip(&self.titles);
        let Some((word, _)) = cells.next() else {
            return String::new();
        };
        let meanings = cells.enumerate().map(|(at, (cell, title))| match at {
            0 => cell,
            _ => format!("{}: {cell}", title.to_lowercase()),
        });
        tag(&word, &meanings.collect::<Vec<_>>().join(". "))
    }
}
