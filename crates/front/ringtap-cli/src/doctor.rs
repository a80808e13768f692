// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap doctor`: prints what kernel, interface, driver and limits allow; changes settings with `--fix`.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use ringtap_device::kinds;
use ringtap_net::doctor::{self, Diagnosis, Severity};

use crate::{UsageError, print};

/// Checks what this machine and an interface offer for captures, and what would make them better.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Interface to check besides the machine.
    #[arg(add = crate::completion::interfaces())]
    interface: Option<String>,

    /// Run the commands that are listed as fixes; needs root.
    #[arg(long, conflicts_with = "restore")]
    fix: bool,

    /// Undo what --fix changed since the machine started, the last change first; needs root.
    #[arg(long)]
    restore: bool,

    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  ringtap doctor                  the machine: kernel, rights, limits
  ringtap doctor eth0             an interface too
  sudo ringtap doctor eth0 --fix  runs the listed commands
  sudo ringtap doctor --restore   undoes them

Exit status: 0 if nothing is wrong; 4 if a finding is marked \"bad\".";

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    // Commands run to their end also if nobody reads the output any more.
    let mut printed = Ok(());
    let mut say = |line| {
        if printed.is_ok() {
            printed = print::line(line);
        }
    };
    if args.restore {
        doctor::restore(&mut say, |line| print::notes([line]))?;
        return printed.map(|()| ExitCode::SUCCESS);
    }
    let purposes = kinds::interface_kinds().filter_map(|kind| kind.purpose);
    let all = doctor::examine(args.interface.as_deref(), &purposes.collect::<Vec<_>>())?;
    if args.json {
        let interface = args.interface.as_deref();
        let report = serde_json::json!({"type": "doctor", "interface": interface, "findings": all});
        print::line(report)?;
    } else {
        show(&all)?;
    }
    if args.fix {
        ensure!(
            rustix::process::geteuid().is_root(),
            UsageError("--fix changes settings of the machine: run it with sudo".to_owned())
        );
        let remedies = all.iter().filter_map(|one| one.remedy.as_ref());
        doctor::fix(remedies, &mut say)?;
        return printed.map(|()| ExitCode::SUCCESS);
    }
    let is_bad = all.iter().any(|one| one.severity == Severity::Bad);
    Ok(if is_bad {
        ExitCode::from(crate::statuses::FOUND)
    } else {
        ExitCode::SUCCESS
    })
}

/// Prints the findings as text.
fn show(all: &[Diagnosis]) -> Result<()> {
    for one in all {
        let mark = match one.severity {
            Severity::Good => "ok  ",
            Severity::Note => "note",
            Severity::Bad => "BAD ",
        };
        print::line(format_args!("{mark}  {}: {}", one.topic, one.found))?;
        if !one.why.is_empty() {
            print::line(format_args!("      {}", one.why))?;
        }
        if let Some(remedy) = &one.remedy {
            print::line(format_args!("      fix: {}", remedy.change.join(" ")))?;
        }
    }
    let fixes = all.iter().filter(|one| one.remedy.is_some()).count();
    if fixes > 0 {
        print::line(format_args!(
            "{fixes} of them by `ringtap doctor DEVICE --fix`; --restore undoes that"
        ))?;
    }
    Ok(())
}
