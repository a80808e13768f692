// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap doctor`: what kernel, interface, driver and limits allow, why it matters, and what to change.
//!
//! Invariants
//! - Nothing changes without `--fix`, and `--fix` changes only what `--restore` restores.
//! - The command that restores a setting is stored before the setting changes.

mod answers;
mod device;
mod machine;
mod repair;

#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::thread;

use anyhow::{Result, ensure};
use clap::Args;
use ringtap_net::interface::Interface;
use ringtap_net::interrupts;
use serde::Serialize;

use crate::{UsageError, print};
use answers::DeviceAnswers;

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

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Severity {
    /// As it should be.
    Good,
    /// Worth to know.
    Note,
    /// Costs packets, or changes them.
    Bad,
}

/// Commands that change a setting, and those that restore it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Remedy {
    change: Vec<String>,
    restore: Vec<String>,
}

impl Remedy {
    /// Two command lines, whose words have no spaces.
    fn new(change: &str, restore: &str) -> Self {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        Self {
            change: words(change),
            restore: words(restore),
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Diagnosis {
    topic: &'static str,
    severity: Severity,
    found: String,
    /// Why it matters, and what to do without a command; empty if all is well.
    why: String,
    remedy: Option<Remedy>,
}

impl Diagnosis {
    fn good(topic: &'static str, found: impl Into<String>) -> Self {
        Self {
            topic,
            severity: Severity::Good,
            found: found.into(),
            why: String::new(),
            remedy: None,
        }
    }

    fn note(topic: &'static str, found: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            severity: Severity::Note,
            why: why.into(),
            ..Self::good(topic, found)
        }
    }

    fn bad(topic: &'static str, found: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            severity: Severity::Bad,
            ..Self::note(topic, found, why)
        }
    }

    fn with(self, remedy: Remedy) -> Self {
        Self {
            remedy: Some(remedy),
            ..self
        }
    }
}

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    if args.restore {
        repair::restore()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut all = machine::diagnose();
    if let Some(name) = &args.interface {
        let interface = Interface::find(name)?;
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let answers = DeviceAnswers::ask(&interface.name, interface.index);
        all.extend(device::diagnose(&interface.name, &answers, cpus));
        if let Some(cpu) = interrupts::receiving_cpu(&interface.name) {
            all.push(Diagnosis::good(
                "interrupts",
                format!("CPU {cpu} receives: `--cpu auto` puts capture and reader near it"),
            ));
        }
    }
    if args.json {
        let interface = args.interface.as_deref();
        let report = serde_json::json!({"type": "doctor", "interface": interface, "findings": all});
        print::line(report)?;
    } else {
        show(&all)?;
    }
    if args.fix {
        let remedies: Vec<_> = all.iter().filter_map(|one| one.remedy.as_ref()).collect();
        ensure!(
            rustix::process::geteuid().is_root(),
            UsageError("--fix changes settings of the machine: run it with sudo".to_owned())
        );
        repair::fix(&remedies)?;
        return Ok(ExitCode::SUCCESS);
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
