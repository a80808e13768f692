// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the commands of `--fix`, and undoes them with `--restore`.
//!
//! Invariants
//! - Root obeys no file that another user could have written, and runs no command of it but those that
//!   `--fix` stores.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use ringtap_ipc::folder::{Folder, ROOT_FOLDER};
use serde::{Deserialize, Serialize};

use super::Remedy;
use crate::print;

/// Name of the file with the commands that restore; gone after a restart, as the settings are.
const FILE: &str = "doctor";
/// Most bytes of the file that are read.
const MAX_BYTES: u64 = 1024 * 1024;

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
    let folder = Folder::of_root()?;
    let mut text = String::new();
    match folder.open_own(FILE) {
        Ok(file) => {
            let read = file.take(MAX_BYTES).read_to_string(&mut text);
            read.context(FILE)?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let here = own_namespace()?;
    let mut changes = Vec::new();
    for line in text.lines() {
        let change: Option<ChangedSetting> = serde_json::from_str(line).ok();
        match change.filter(|change| is_restoring(&change.command)) {
            Some(change) => changes.push(change),
            None => print::note(format_args!(
                "ringtap: {ROOT_FOLDER}/{FILE}: not a command that restores: {line}"
            )),
        }
    }
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
    if lines.is_empty() {
        folder.remove(FILE)
    } else {
        folder.replace(FILE, lines.concat().as_bytes())
    }
    .context(FILE)?;
    ensure!(
        count == 0,
        "{count} commands failed, and stay in {ROOT_FOLDER}/{FILE}"
    );
    Ok(())
}

/// Appends a change to the file.
fn keep(change: &ChangedSetting) -> Result<()> {
    let mut file = Folder::of_root()?.append(FILE)?;
    let line = serde_json::to_string(change)? + "\n";
    file.write_all(line.as_bytes()).context(FILE)
}

/// Whether a command is one that `--fix` may store.
pub(super) fn is_restoring(command: &[String]) -> bool {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let is_name = |name: &str| !name.is_empty() && !name.starts_with('-') && !name.contains('/');
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let is_key = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b':')
    };
    match words[..] {
        [
            "sysctl",
            "-w",
            "net.core.bpf_jit_enable=0" | "net.core.bpf_jit_enable=1",
        ] => true,
        [
            "ethtool",
            "-K",
            name,
            "lro" | "rx-gro-hw" | "rxvlan",
            "on" | "off",
        ] => is_name(name),
        ["ethtool", "-L", name, "combined" | "rx", count] => is_name(name) && is_number(count),
        ["ethtool", "-G", name, "rx", count] => is_name(name) && is_number(count),
        ["ethtool", "-X", name, "hkey", key] => is_name(name) && is_key(key),
        _ => false,
    }
}

/// Runs a command; returns whether it succeeded.
fn run(command: &[String]) -> Result<bool> {
    ensure!(is_restoring(command), "{}: is not run", command.join(" "));
    let (program, args) = command.split_first().context("an empty command")?;
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
