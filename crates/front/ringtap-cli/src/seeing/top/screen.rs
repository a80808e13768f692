// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole screen: a title, tables that scroll, and a line of keys.

use std::path::Path;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use ringtap_explain::change::StatusChange;
use ringtap_explain::tables::{self, Emphasis, ReaderOrder};
use ringtap_explain::text::span;
use ringtap_ipc::protocol::HubStatus;
use ringtap_pool::number::to_u16;

use super::palette::{HEAD, Palette};

#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) order: ReaderOrder,
    /// Number of table lines above the visible part.
    pub(super) scroll: u16,
}

impl View {
    pub(super) fn scroll_by(&mut self, lines: i16) {
        self.scroll = self.scroll.saturating_add_signed(lines);
    }
}

pub(super) struct Screen {
    socket: String,
    interval: Duration,
    palette: Palette,
    snapshots: [Option<HubStatus>; 2],
    pub(super) view: View,
    /// Seconds without an answer from the hub, if it is silent.
    pub(super) silence_s: Option<u64>,
}

impl Screen {
    pub(super) fn new(socket: &Path, interval: Duration, palette: Palette) -> Self {
        Screen {
            socket: socket.display().to_string(),
            interval,
            palette,
            snapshots: [None, None],
            view: View::default(),
            silence_s: None,
        }
    }

    /// Shows these counters from now on.
    pub(super) fn show(&mut self, status: HubStatus) {
        let [_, last] = std::mem::take(&mut self.snapshots);
        self.snapshots = [last, Some(status)];
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let [_, Some(now)] = &self.snapshots else {
            return;
        };
        let (line, rest) = (Constraint::Length(1), Constraint::Min(0));
        let [top, middle, bottom] = Layout::vertical([line, rest, line]).areas(frame.area());
        let lines = self.lines(now, usize::from(middle.width));
        let hidden = lines.len().saturating_sub(usize::from(middle.height));
        let most = to_u16(hidden);
        self.view.scroll = self.view.scroll.min(most);
        frame.render_widget(Paragraph::new(self.title(now)), top);
        frame.render_widget(Paragraph::new(self.keys(most)), bottom);
        let scrolled = Paragraph::new(lines).scroll((self.view.scroll, 0));
        frame.render_widget(scrolled, middle);
    }

    fn lines(&self, now: &HubStatus, width: usize) -> Vec<Line<'static>> {
        let change = StatusChange::between(self.snapshots[0].as_ref(), now);
        let palette = self.palette;
        let mut lines = palette.table(width, tables::sources(change));
        lines.push(Line::default());
        lines.extend(palette.table(width, tables::readers(change, self.view.order)));
        if now.readers.is_empty() {
            lines.push(Line::from("no readers"));
        }
        if let Some(groups) = tables::groups(change) {
            lines.push(Line::default());
            lines.extend(palette.table(width, groups));
        }
        lines.push(Line::default());
        let losses = tables::losses(change);
        if losses.rows.is_empty() {
            lines.push(Line::from("nothing lost"));
        } else {
            lines.extend(palette.table(width, losses));
        }
        let faults = tables::faults(change).into_iter();
        lines.extend(faults.map(|fault| palette.line(fault, Emphasis::Bad)));
        lines
    }

    fn title(&self, now: &HubStatus) -> Line<'static> {
        if let Some(seconds) = self.silence_s {
            let text = format!("THE HUB HAS NOT ANSWERED for {seconds} s");
            return self.palette.line(text, Emphasis::Bad);
        }
        let up = span(now.time_ns.saturating_sub(now.started_ns));
        let text = format!(
            "ringtap {}: hub {} at {}, up {up}, every {} s{}",
            now.version,
            now.pid,
            self.socket,
            self.interval.as_secs_f64(),
            if now.partial {
                ", only groups that you may join"
            } else {
                ""
            }
        );
        Line::styled(text, HEAD)
    }

    fn keys(&self, hidden: u16) -> Line<'static> {
        let mut text = format!("q quit  s sort (now by {})", self.view.order.word());
        if hidden > 0 {
            let above = self.view.scroll;
            text = format!("{above} above, {} below: arrows  {text}", hidden - above);
        }
        Line::from(text)
    }
}
