// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap top`: shows a running hub live on a terminal.
//!
//! Invariants
//! - However `top` ends (a key, a signal, an error, a panic), it restores the terminal before it
//!   prints its last message.
//! - Keys work while the hub does not answer: another thread waits for the hub.

mod palette;
mod poller;
mod screen;

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::{HubSocketArgs, seconds};
use crate::UsageError;
use palette::Palette;
use poller::Poller;
use screen::{Screen, View};

/// Longest wait for a key before the loop checks for signals and new counters.
const TICK: Duration = Duration::from_millis(100);

/// Shows a running hub on the terminal: rates of sources and lanes, use of pools, rates and lag of
/// readers, losses by reason.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    hub: HubSocketArgs,

    /// Seconds between two snapshots of the counters; rates are averages over that time.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
}

const HELP: &str = "\
Examples:
  ringtap top                                the hub of this machine
  ringtap top --interval 5 --socket ids.sock  another hub, averages over five seconds

Keys:
  q, Esc, Ctrl-C           quit
  s                        sort readers by loss, rate, lag, name
  arrows, PgUp, PgDn, Home scroll

Colours: red loses packets now, yellow lost packets or is about to. NO_COLOR=1 turns them off.
OFFLOADS lists groups whose members help each other: the part of a lane's chunks above which they
do, chunks that did not go to the lane's owner, packets in them, packets out of order, buckets of
flows that moved, and moves out of order.
LAG is the chunks that a reader holds of those that it may hold, and the age of the oldest packet in
them in milliseconds.

Exit status: 0; 1 if no hub runs, the hub ended or the terminal was closed; 2 if standard output is not a terminal.";

pub(crate) fn run(args: &TopArgs) -> Result<ExitCode> {
    let no_terminal = "top needs a terminal, but standard output is not one: use `ringtap status`";
    ensure!(
        io::stdout().is_terminal(),
        UsageError(no_terminal.to_owned())
    );
    let mut screen = Screen::new(&args.hub.path(), args.interval, Palette::from_environment());
    let (mut poller, first) = Poller::start(args.hub.connect("top")?, args.interval)?;
    screen.show(first);
    let quit = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // A second signal ends `top` even if the loop hangs.
        let again = flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&quit));
        again.context("cannot handle signals")?;
        flag::register(signal, Arc::clone(&quit)).context("cannot handle signals")?;
    }
    let mut terminal = Terminal::take()?;
    let mut is_stale = true;
    while !quit.load(Relaxed) {
        if std::mem::take(&mut is_stale) {
            terminal.0.draw(|frame| screen.draw(frame))?;
        }
        if is_gone(TICK)? {
            return Ok(ExitCode::FAILURE);
        }
        if event::poll(Duration::ZERO)? {
            is_stale = true;
            if handle(&event::read()?, &mut screen.view).is_break() {
                break;
            }
        }
        while let Some(status) = poller.try_next()? {
            is_stale = true;
            screen.show(status);
        }
        let silence = poller.silence_s();
        is_stale |= std::mem::replace(&mut screen.silence_s, silence) != silence;
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for a key, at most this long; returns whether the terminal was closed. In a closed terminal,
/// crossterm would wait for keys forever.
fn is_gone(timeout: Duration) -> io::Result<bool> {
    let terminal = io::stdout();
    let mut keys = [PollFd::new(&terminal, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).unwrap_or_default();
    match poll(&mut keys, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let closed = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(keys[0].revents().intersects(closed))
}

/// The terminal while `top` draws on it; dropping this restores it.
struct Terminal(DefaultTerminal);

impl Terminal {
    /// Takes over the terminal; a panic restores the terminal before it prints its message.
    fn take() -> Result<Self> {
        let taken = ratatui::try_init().inspect_err(|_| ratatui::restore());
        Ok(Terminal(taken.context("cannot draw on this terminal")?))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if is_gone(Duration::ZERO).unwrap_or(true) {
            // ratatui's own drop would print that it cannot restore the terminal, and panic.
            std::process::exit(1);
        }
        // Fails only if the terminal went just now.
        let _gone = ratatui::try_restore();
    }
}

/// Handles a key; breaks if the key quits. The next drawing adapts to a new terminal size.
fn handle(event: &Event, view: &mut View) -> ControlFlow<()> {
    let Event::Key(KeyEvent {
        code,
        modifiers,
        kind: KeyEventKind::Press | KeyEventKind::Repeat,
        ..
    }) = event
    else {
        return ControlFlow::Continue(());
    };
    match code {
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => return ControlFlow::Break(()),
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => {
            return ControlFlow::Break(());
        }
        KeyCode::Char('s') => view.order = view.order.next(),
        KeyCode::Up | KeyCode::Char('k') => view.scroll_by(-1),
        KeyCode::Down | KeyCode::Char('j') => view.scroll_by(1),
        KeyCode::PageUp => view.scroll_by(-10),
        KeyCode::PageDown | KeyCode::Char(' ') => view.scroll_by(10),
        KeyCode::Home => view.scroll = 0,
        _ => {}
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests;
