// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap status`: all counters of a running hub as JSON.

use std::io::{self, ErrorKind, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use ringtap_ipc::protocol::HubStatus;
use serde::Serialize;

use super::{HubSocketArgs, seconds};
use crate::print;

/// Prints all counters of a running hub as one JSON object: its sources with their lanes, its
/// groups, its readers.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    hub: HubSocketArgs,

    /// Print each object on one line, also on a terminal.
    #[arg(long)]
    json: bool,

    /// Repeat every SECONDS, until the hub or this command ends.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    interval: Option<Duration>,
}

const EXAMPLES: &str = "\
Examples:
  ringtap status                                         formatted, on a terminal
  ringtap status | jq '.readers[] | {name, overrun}'
  ringtap status --interval 10 >> hub.jsonl              one object a line, every ten seconds

All counters are totals in packets since the hub started, or since the reader attached; times are
nanoseconds since 1970. The fields are in docs/counters.md.

Exit status: 0; 1 if no hub runs or the hub ended.";

/// A hub's status as an object of JSON that names its kind.
#[derive(Serialize)]
struct StatusLine {
    r#type: &'static str,
    #[serde(flatten)]
    status: HubStatus,
}

pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode> {
    let connection = args.hub.connect("status")?;
    let pretty = io::stdout().is_terminal() && !args.json;
    let mut next = Instant::now();
    loop {
        let status = StatusLine {
            r#type: "status",
            status: connection.status()?,
        };
        let text = if pretty {
            serde_json::to_string_pretty(&status)?
        } else {
            serde_json::to_string(&status)?
        };
        match print::write(&text) {
            // The program that reads the pipe needs no more.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            printed => printed?,
        }
        let Some(interval) = args.interval else {
            return Ok(ExitCode::SUCCESS);
        };
        next += interval;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}
