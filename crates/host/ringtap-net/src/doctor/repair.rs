// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs commands that change settings, and undoes them.
//!
//! Invariants
//! - One process at a time runs commands and changes the file that has them.
//! - Root obeys no file that another user could have written, and runs no command of it but those that
//!   [`fix`] stores.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use ringtap_ipc::folder::{Folder, FolderError, ROOT_FOLDER};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::findings::Remedy;

/// Name of the file with the commands that restore; gone after a restart, as the settings are.
const FILE: &str = "doctor";
/// Locked by the process that runs commands.
const LOCK: &str = "doctor.lock";
/// Most bytes of the file that are read.
const MAX_BYTES: u64 = 1024 * 1024;

/// Why settings were not changed or not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "messages show what each field means")]
pub enum RepairError {
    /// Some commands failed while changing settings.
    #[error("{0} commands failed; `ringtap doctor --restore` undoes the others")]
    NotChanged(usize),
    /// Some commands failed while restoring settings.
    #[error("{0} commands failed, and stay in {ROOT_FOLDER}/{FILE}")]
    NotRestored(usize),
    /// The folder for the commands that restore cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The file or the lock of these commands cannot be used, or the namespace is unknown.
    #[error("{FILE}: {0}")]
    File(#[from] io::Error),
    /// The command is none that changes a setting.
    #[error("{0}: is not run")]
    NotAllowed(String),
    /// The command cannot run.
    #[error("{program}: {reason}")]
    NotRun { program: String, reason: io::Error },
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct ChangedSetting {
    /// Network namespace: elsewhere the interface's name means another one.
    namespace: u64,
    command: Vec<String>,
}

impl ChangedSetting {
    fn line(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// Changes all settings, also after one that fails. `say` gets each command before it runs.
///
/// # Errors
///
/// Every [`RepairError`] but [`RepairError::NotRestored`].
pub fn fix<'a>(
    remedies: impl IntoIterator<Item = &'a Remedy>,
    mut say: impl FnMut(String),
) -> Result<(), RepairError> {
    let folder = Folder::for_root()?;
    let _lock = lock(&folder)?;
    let namespace = own_namespace()?;
    let mut failed = 0;
    for remedy in remedies {
        let change = ChangedSetting {
            namespace,
            command: remedy.restore.clone(),
        };
        folder.append(FILE)?.write_all(&change.line()?)?;
        say(format!("+ {}", remedy.change.join(" ")));
        failed += usize::from(!run(&remedy.change)?);
    }
    match failed {
        0 => Ok(()),
        failed => Err(RepairError::NotChanged(failed)),
    }
}

/// Undoes the changes in this network namespace, the last one first. `say` gets each command before it runs, and
/// `note` each line of the file that is none.
///
/// # Errors
///
/// Every [`RepairError`] but [`RepairError::NotChanged`].
pub fn restore(
    mut say: impl FnMut(String),
    mut note: impl FnMut(String),
) -> Result<(), RepairError> {
    let folder = Folder::for_root()?;
    let _lock = lock(&folder)?;
    let mut text = String::new();
    match folder.open_own(FILE) {
        Ok(file) => {
            file.take(MAX_BYTES).read_to_string(&mut text)?;
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
            None => note(format!(
                "{ROOT_FOLDER}/{FILE}: not a command that restores: {line}"
            )),
        }
    }
    let (own, others): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|one| one.namespace == here);
    if own.is_empty() {
        say("nothing to restore here".to_owned());
        return Ok(());
    }
    let mut failed = Vec::new();
    for change in own.into_iter().rev() {
        say(format!("+ {}", change.command.join(" ")));
        if !run(&change.command)? {
            failed.push(change);
        }
    }
    failed.reverse();
    let left = others.iter().chain(&failed);
    let lines = left
        .map(ChangedSetting::line)
        .collect::<io::Result<Vec<_>>>()?;
    if lines.is_empty() {
        folder.remove(FILE)?;
    } else {
        folder.replace(FILE, &lines.concat())?;
    }
    match failed.len() {
        0 => Ok(()),
        failed => Err(RepairError::NotRestored(failed)),
    }
}

/// Waits until no other process changes settings or the file; holds this off until the lock is dropped.
fn lock(folder: &Folder) -> Result<OwnedFd, RepairError> {
    let file = folder.append(LOCK)?;
    flock(&file, FlockOperation::LockExclusive).map_err(io::Error::from)?;
    Ok(file.into())
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
fn run(command: &[String]) -> Result<bool, RepairError> {
    let [program, args @ ..] = command else {
        return Err(RepairError::NotAllowed(String::new()));
    };
    if !is_restoring(command) {
        return Err(RepairError::NotAllowed(command.join(" ")));
    }
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    let status = status.map_err(|reason| RepairError::NotRun {
        program: program.clone(),
        reason,
    })?;
    Ok(status.success())
}

fn own_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/net")?.ino())
}
