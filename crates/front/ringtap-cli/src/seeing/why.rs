// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap why`: where packets were lost, since when, and what to change, in sentences.

mod advice;
mod explain;
mod groups;
mod words;

use std::fs;
use std::io::{self, ErrorKind, IsTerminal as _};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use ratatui::crossterm::terminal;
use ringtap_client::{Connection, Control as _};

use super::{HubSocketArgs, seconds};
use crate::{print, statuses};
use explain::{Explanation, explain};
pub(super) use words::span;
use words::wrapped;

/// Explains where a running hub lost packets, since when, how many, and what to change.
///
/// Reads the hub's counters twice, to separate past losses from present ones.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    hub: HubSocketArgs,

    /// Seconds between the two readings.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// One JSON object instead of sentences.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  ringtap why                     now
  ringtap why --interval 60       losses of the next minute, and before it
  ringtap why || mail -s loss me  in a script

Exit status: 0 if nothing was lost; 4 if packets were lost, a source failed or waits, a reader was cut off
or counters do not add up; 1 if no hub runs or the hub ended.";

pub(crate) fn run(args: &WhyArgs) -> Result<ExitCode> {
    let connection = args.hub.connect("why")?;
    let before = connection.status()?;
    thread::sleep(args.interval);
    let now = connection.status()?;
    let here = is_here(&connection, now.pid);
    let answer = explain(&before, &now, &|pid| here && is_stopped(pid));
    let text = if args.json {
        serde_json::to_string(&answer)?
    } else {
        lines(&answer)
    };
    match print::write(&text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        printed => printed?,
    }
    Ok(if answer.is_bad {
        ExitCode::from(statuses::FOUND)
    } else {
        ExitCode::SUCCESS
    })
}

/// The answer as text; on a terminal, wrapped to its width.
fn lines(answer: &Explanation) -> String {
    let width = if io::stdout().is_terminal() {
        terminal::size()
            .ok()
            .map(|(columns, _)| usize::from(columns))
    } else {
        None
    };
    let sentences = answer.sentences();
    let lines = sentences.iter().map(|sentence| match width {
        Some(width @ 40..) => wrapped(sentence, width),
        _ => sentence.clone(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether the hub's process ids are valid here: the hub has the id that it reports.
fn is_here(connection: &Connection, pid: i32) -> bool {
    let peer = connection
        .connection()
        .map(rustix::net::sockopt::socket_peercred);
    peer.is_some_and(|peer| peer.is_ok_and(|peer| peer.pid.as_raw_nonzero().get() == pid))
}

/// Whether this process is stopped, as after Ctrl-Z in a shell.
fn is_stopped(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which may contain brackets and spaces.
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|state| state.starts_with(['T', 't']))
}

#[cfg(test)]
mod tests;
