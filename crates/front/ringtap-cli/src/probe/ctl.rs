// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap probe ctl`: changes a running probe; and the reload of its file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Subcommand;
use ringtap_ipc::folder::Folder;
use ringtap_ipc::socket::Listener;
use ringtap_probe::config::{ExportPlan, ProbeConfig, time};
use ringtap_probe::ctl::{SOCKET, default_path, send};
use ringtap_probe::{PlanReader, ProbeCommand, ProbeControl};
use signal_hook::iterator::Signals;

use crate::confine::UserArgs;
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

/// The folder for sockets of root's probe, in which the user that it becomes may remove them; `None` without root.
pub(super) fn folder(user: &UserArgs) -> Result<Option<PathBuf>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let Some(uid) = user.user().map(|user| user.uid) else {
        return Ok(Some(Folder::of_root()?.path().to_owned()));
    };
    let own = Folder::of_root()?.folder_for(&format!("probe-{uid}"), uid)?;
    Ok(Some(own.path().to_owned()))
}

/// The socket that the user named, or for a live capture the usual one if it is free; for the user that the probe
/// becomes.
pub(super) fn listener(
    named: Option<&Path>,
    is_live: bool,
    user: &UserArgs,
) -> Result<Option<Listener>> {
    let own = rustix::process::geteuid().as_raw();
    let uid = user.user().map_or(own, |user| user.uid);
    let bind = |path: &Path| Ok(Listener::bind_for(path, uid)?);
    if let Some(path) = named {
        return bind(path).map(Some);
    }
    if !is_live {
        return Ok(None);
    }
    let usual = || -> Result<Option<Listener>> {
        let own = folder(user)?.map(|folder| folder.join(SOCKET));
        let path = own.or_else(default_path);
        path.map(|path| bind(&path)).transpose()
    };
    usual().or_else(|error| {
        let error = crate::describe(&error);
        print::note(format_args!(
            "ringtap: no `probe ctl` without a --control of its own: {error}"
        ));
        Ok(None)
    })
}

/// Reads the configuration again; destinations stay as they are.
pub(super) fn reader(
    path: PathBuf,
    every: Option<Duration>,
    exports: Vec<ExportPlan>,
) -> PlanReader {
    Box::new(move || {
        let config = ProbeConfig::read(&path, every)?;
        let mut notes = Vec::new();
        if config.exports != exports {
            notes.push("export: unchanged: it changes with a restart of the probe".to_owned());
        }
        Ok((config.plan, notes))
    })
}

/// Reads the configuration again at each of these signals, on a thread of its own.
pub(super) fn reload_at(mut signals: Signals, control: Arc<ProbeControl>) -> Result<()> {
    let reload = move || {
        for _ in signals.forever() {
            match control.apply(&ProbeCommand::Reload) {
                Ok(done) => print::note(format_args!("ringtap: {done}")),
                Err(error) => print::error(error),
            }
        }
    };
    let builder = std::thread::Builder::new().name("reload".into());
    builder.spawn(reload).context("cannot start a thread")?;
    Ok(())
}
