// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the commands of `--fix`, and undoes them with `--restore`.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::Remedy;
use crate::print;

/// The commands that restore; gone after a restart, as the settings are. Not below /run/ringtap, which
/// belongs to the hub's user, because root runs what is in it.
const FILE: &str = "/run/ringtap-doctor";
/// The only programs that are run.
const PROGRAMS: [&str; 2] = ["ethtool", "sysctl"];

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct ChangedSetting {
    /// Network namespace: elsewhere the interface's name means another one.
    namespace: u64,
    command: Vec<String>,
}

/// Changes all settings, also after one that fails.
pub(super) fn fix(remedies: &[&Remedy]) -> Result<()> {
    let mut failed = 0;
    for remedy in remedies {
        let namespace = own_namespace()?;
        keep(&ChangedSetting {
            namespace,
            command: remedy.restore.clone(),
        })?;
        print::line(format_args!("+ {}", remedy.change.join(" ")))?;
        failed += u32::from(!run(&remedy.change)?);
    }
    ensure!(
        failed == 0,
        "{failed} commands failed; `ringtap doctor --restore` undoes the others"
    );
    Ok(())
}

/// Undoes the changes in this network namespace, the last one first.
pub(super) fn restore() -> Result<()> {
    let text = match fs::read_to_string(FILE) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text.context(FILE)?,
    };
    let here = own_namespace()?;
    let changes: Vec<ChangedSetting> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let (own, others): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|one| one.namespace == here);
    if own.is_empty() {
        return print::line("nothing to restore here");
    }
    let mut failed = Vec::new();
    for change in own.into_iter().rev() {
        print::line(format_args!("+ {}", change.command.join(" ")))?;
        if !run(&change.command)? {
            failed.push(change);
        }
    }
    let count = failed.len();
    failed.reverse();
    let left = others.iter().chain(&failed);
    let lines: Vec<_> = left
        .map(|one| Ok(serde_json::to_string(one)? + "\n"))
        .collect::<Result<_>>()?;
    match lines.is_empty() {
        true => fs::remove_file(FILE).context(FILE)?,
        false => fs::write(FILE, lines.concat()).context(FILE)?,
    }
    ensure!(count == 0, "{count} commands failed, and stay in {FILE}");
    Ok(())
}

/// Appends a change to the file.
fn keep(change: &ChangedSetting) -> Result<()> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(FILE);
    let line = serde_json::to_string(change)? + "\n";
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .context(FILE)
}

/// Runs a command; returns whether it succeeded.
fn run(command: &[String]) -> Result<bool> {
    let [program, args @ ..] = command else {
        bail!("an empty command");
    };
    ensure!(
        PROGRAMS.contains(&program.as_str()),
        "{FILE}: {program} is not run"
    );
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    Ok(status.with_context(|| program.clone())?.success())
}

fn own_namespace() -> Result<u64> {
    Ok(fs::metadata("/proc/self/ns/net")?.ino())
}
