// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap why`: where packets were lost, since when, and what to change, in sentences.

use std::io::{self, ErrorKind, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use ratatui::crossterm::terminal;
use ringtap_explain::text::wrapped_paragraph;
use ringtap_explain::{Explanation, explain_hub};

use super::{HubSocketArgs, seconds};
use crate::{print, statuses};

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
    let answer = explain_hub(&connection, args.interval)?;
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
        Some(width @ 40..) => wrapped_paragraph(sentence, width),
        _ => sentence.clone(),
    });
    lines.collect::<Vec<_>>().join("\n")
}
