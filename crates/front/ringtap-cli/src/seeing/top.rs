// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap top`: a running hub on a terminal, live.
//!
//! Invariants
//! - However it ends (a key, a signal, an error, a panic), the terminal is as before; what there
//!   is to say is said after that.
//! - A hub that does not answer never keeps the keys from working: a thread of its own asks it.
#![forbid(unsafe_code)]

mod asking;
mod cells;
mod groups;
mod losses;
mod readers;
mod screen;
mod sources;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::{HubArgs, seconds};
use crate::print;
use asking::Asking;
use cells::Palette;
use screen::{Screen, View};

/// How often keys, signals and new counters are looked for.
const TICK: Duration = Duration::from_millis(100);
/// Exit status for a command that cannot be carried out as it was given.
const USAGE: u8 = 2;

/// Shows a running hub on the terminal: rates of sources and lanes, how full pools are, rates and
/// lag of readers, losses by reason.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    hub: HubArgs,

    /// Seconds from one look at the counters to the next; rates are for that time.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
}

const HELP: &str = "\
Keys:
  q, Esc, Ctrl-C           quit
  s                        sort readers by loss, rate, lag, name
  arrows, PgUp, PgDn, Home scroll

Red is what loses packets now, yellow what did or is about to. NO_COLOR=1 is honoured.
OFFLOADS shows groups whose members help each other: above which part of a lane's chunks, chunks that
went to another than the lane's owner, packets in them and packets out of order, buckets of flows
that moved, and how often that was out of order.
LAG is chunks that the reader holds, of those that it may hold, and the age of the oldest packet
in them in milliseconds.

Exit status: 0; 1 where no hub runs or it ended; 2 where standard output is no terminal.";

/// Runs the verb.
pub(crate) fn run(args: &TopArgs) -> Result<ExitCode> {
    if !io::stdout().is_terminal() {
        print::note(format_args!(
            "ringtap: top draws on a terminal, and standard output is none: use `ringtap status`"
        ));
        return Ok(ExitCode::from(USAGE));
    }
    let mut screen = Screen::new(&args.hub.path(), args.interval, Palette::of_environment());
    let asking = Asking::start(args.hub.connect("top")?, args.interval)?;
    screen.show(asking.first()?);
    let quit = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::clone(&quit)).context("cannot handle signals")?;
    }
    let mut terminal = Terminal::take()?;
    let mut is_stale = true;
    while !quit.load(Relaxed) {
        if std::mem::take(&mut is_stale) {
            terminal.0.draw(|frame| screen.draw(frame))?;
        }
        if event::poll(TICK)? {
            is_stale = true;
            if act(&event::read()?, &mut screen.view) == Act::Quit {
                break;
            }
        }
        while let Some(status) = asking.next()? {
            is_stale = true;
            screen.show(status);
        }
        let silence = asking.silence_s();
        is_stale |= std::mem::replace(&mut screen.silence_s, silence) != silence;
    }
    Ok(ExitCode::SUCCESS)
}

/// The terminal while it is ours; it is given back when this is dropped.
struct Terminal(DefaultTerminal);

impl Terminal {
    /// Takes it; a panic gives it back before it says anything.
    fn take() -> Result<Self> {
        let taken = ratatui::try_init().inspect_err(|_| ratatui::restore());
        Ok(Terminal(taken.context("cannot draw on this terminal")?))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Where the terminal is gone there is nobody to tell.
        let _gone = ratatui::try_restore();
    }
}

/// What follows from an event.
#[derive(Debug, PartialEq, Eq)]
enum Act {
    Quit,
    GoOn,
}

fn act(event: &Event, view: &mut View) -> Act {
    // A new size is found by the next drawing.
    let Event::Key(KeyEvent {
        code,
        modifiers,
        kind: KeyEventKind::Press | KeyEventKind::Repeat,
        ..
    }) = event
    else {
        return Act::GoOn;
    };
    match code {
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => return Act::Quit,
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return Act::Quit,
        KeyCode::Char('s') => view.order = view.order.next(),
        KeyCode::Up | KeyCode::Char('k') => view.scroll_by(-1),
        KeyCode::Down | KeyCode::Char('j') => view.scroll_by(1),
        KeyCode::PageUp => view.scroll_by(-10),
        KeyCode::PageDown | KeyCode::Char(' ') => view.scroll_by(10),
        KeyCode::Home => view.scroll = 0,
        _ => {}
    }
    Act::GoOn
}

#[cfg(test)]
mod tests;
