// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap probe ctl`: changes a running probe.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Subcommand;
use ringtap_probe::ProbeCommand;
use ringtap_probe::config::time;
use ringtap_probe::ctl::{default_path, send};

use crate::print;

#[derive(Subcommand, Debug)]
pub(crate) enum ProbeVerb {
    /// Change or ask a running probe, as root or as its user.
    #[command(
        after_help = "Examples:\n  ringtap probe ctl status\n  ringtap probe ctl disable sizes"
    )]
    Ctl {
        /// The probe's socket. [default: that of a probe without --control]
        #[arg(long, value_name = "PATH")]
        control: Option<PathBuf>,

        #[command(subcommand)]
        command: CtlCommand,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum CtlCommand {
    /// Switch an analysis on.
    #[command(after_help = "Examples:\n  ringtap probe ctl enable sizes")]
    Enable { analysis: String },
    /// Switch an analysis off; its results so far appear.
    #[command(after_help = "Examples:\n  ringtap probe ctl disable sizes")]
    Disable { analysis: String },
    /// Change the time between an analysis' results.
    #[command(after_help = "Examples:\n  ringtap probe ctl period 'top pair' 10s")]
    Period {
        analysis: String,
        /// As in the file: 500ms, 5s, 10m, 1h.
        #[arg(value_parser = time)]
        period: Duration,
    },
    /// Give the results so far now, of one analysis or of all but flows.
    #[command(after_help = "Examples:\n  ringtap probe ctl snapshot sizes")]
    Snapshot { analysis: Option<String> },
    /// Read the file of --config again.
    #[command(after_help = "Examples:\n  ringtap probe ctl reload")]
    Reload,
    /// Show the ledger and the analyses, as JSON.
    #[command(after_help = "Examples:\n  ringtap probe ctl status | jq .")]
    Status,
}

pub(super) fn run(verb: &ProbeVerb) -> Result<ExitCode> {
    let ProbeVerb::Ctl { control, command } = verb;
    let path = control.clone().or_else(default_path);
    let path = path.context("there is no $XDG_RUNTIME_DIR: name the probe's --control")?;
    let command = match command {
        CtlCommand::Enable { analysis } => ProbeCommand::Enable(analysis.clone()),
        CtlCommand::Disable { analysis } => ProbeCommand::Disable(analysis.clone()),
        CtlCommand::Period { analysis, period } => ProbeCommand::Period(analysis.clone(), *period),
        CtlCommand::Snapshot { analysis } => ProbeCommand::Snapshot(analysis.clone()),
        CtlCommand::Reload => ProbeCommand::Reload,
        CtlCommand::Status => ProbeCommand::Status,
    };
    print::line(send(&path, &command)?)?;
    Ok(ExitCode::SUCCESS)
}
