// SPDX-License-Identifier: MIT OR Apache-2.0
//! Temporary folders for a process that cannot remove them itself: one with statics, or without the right.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
};

/// Begin of the folders' names; the process that made the folder follows.
const PREFIX: &str = "ringtap-until-exit-";

/// The shells, with the ends of their pipes.
static REMOVERS: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// A new folder that exists until this process ends, however it ends: a shell waits for the end of a pipe
/// that only this process holds, and removes the folder.
///
/// # Panics
///
/// When the folder cannot be made, or the shell does not start.
#[must_use]
pub fn folder_until_exit() -> PathBuf {
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let folder = tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir()
        .expect("a folder can be made")
        .keep();
    let mut remover = Command::new("sh");
    remover
        .args([
            "-c",
            "trap '' INT TERM HUP; cat >/dev/null; rm -rf -- \"$1\"",
            "sh",
        ])
        .arg(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let remover = remover.spawn().expect("sh is there");
    // Other programs that this process starts do not inherit the pipe.
    let mut removers = REMOVERS.lock().unwrap_or_else(PoisonError::into_inner);
    removers.push(remover);
    folder
}

/// Such folders whose process has ended.
#[must_use]
pub fn stale_folders() -> Vec<String> {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_stale = |name: &String| {
        let rest = name.strip_prefix(PREFIX);
        let pid = rest.and_then(|rest| rest.split('-').next());
        pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    };
    names.filter(is_stale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_there_while_the_process_runs() {
        let folder = folder_until_exit();
        fs::write(folder.join("file"), "text").unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with(&format!("{PREFIX}{}-", std::process::id())));
        assert!(!stale_folders().contains(&name.to_owned()));
    }
}
