// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stores the settings that a capture changes, so that the next start restores them after a kill.
//!
//! Each process keeps one file below `/run/ringtap/settings` locked. An unlocked file belongs to a
//! process that was killed.
//!
//! Invariants
//! - A setting is in the file before it is changed.
//! - Settings of other network namespaces stay unchanged: here their paths mean other interfaces.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ringtap_net::interrupts::Setting;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::print;

const FOLDER: &str = "/run/ringtap/settings";

/// One line of the file: a setting as it was before the change.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SettingLine {
    /// Inode of the network namespace.
    namespace: u64,
    path: PathBuf,
    text: String,
}

/// The settings that this process changes.
pub(super) struct StateFile {
    path: PathBuf,
    file: File,
    namespace: u64,
}

impl StateFile {
    /// Creates the file; call this before the first change.
    pub(super) fn create() -> Result<Self> {
        let path = Path::new(FOLDER).join(std::process::id().to_string());
        let create = || {
            fs::create_dir_all(FOLDER)?;
            let mut options = OpenOptions::new();
            let file = options.create(true).append(true).open(&path)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok::<_, io::Error>((file, own_namespace()?))
        };
        let (file, namespace) =
            create().with_context(|| format!("{}: cannot remember settings", path.display()))?;
        Ok(Self {
            path,
            file,
            namespace,
        })
    }

    /// Stores a setting before it is changed.
    pub(super) fn keep(&mut self, setting: &Setting) -> io::Result<()> {
        let line = SettingLine {
            namespace: self.namespace,
            path: setting.path.clone(),
            text: setting.text.clone(),
        };
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        self.file.write_all(&bytes)
    }

    /// Removes the file, once all settings are restored.
    pub(super) fn remove(self) {
        let _gone = fs::remove_file(&self.path);
    }
}

/// Restores settings of this network namespace that killed processes changed.
pub(super) fn restore() {
    let (Ok(files), Ok(namespace)) = (fs::read_dir(FOLDER), own_namespace()) else {
        return;
    };
    for entry in files.flatten() {
        let path = entry.path();
        let Ok(file) = File::open(&path) else {
            continue;
        };
        // Only a process that has ended leaves the lock free.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let lines = lines_of(BufReader::new(&file));
        let is_here = |line: &SettingLine| line.namespace == namespace;
        if !lines.iter().all(is_here) {
            continue;
        }
        for line in lines.into_iter().rev() {
            put_back(Setting {
                path: line.path,
                text: line.text,
            });
        }
        let _gone = fs::remove_file(&path);
    }
}

fn put_back(setting: Setting) {
    let (path, was) = (setting.path.display(), &setting.text);
    match setting.put_back() {
        Ok(()) => print::note(format_args!(
            "ringtap: a capture that was killed had changed {path}: restored to {was}"
        )),
        // The interface is gone, and its settings with it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => print::note(format_args!(
            "ringtap: a capture that was killed had changed {path} from {was}, which cannot be \
             restored: {error}"
        )),
    }
}

/// The complete lines of a file; the setting of an incomplete line was not changed.
fn lines_of(file: impl BufRead) -> Vec<SettingLine> {
    let lines = file.lines().map_while(Result::ok);
    lines
        .map_while(|line| serde_json::from_str(&line).ok())
        .collect()
}

fn own_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/net")?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_left_out() {
        let one = r#"{"namespace":7,"path":"/one","text":"0"}"#;
        let two = r#"{"namespace":7,"path":"/two","text":"0-3"}"#;
        let paths = |text: &str| -> Vec<_> {
            let lines = lines_of(text.as_bytes()).into_iter();
            lines.map(|line| line.path.display().to_string()).collect()
        };
        assert_eq!(paths(&format!("{one}\n{two}\n")), ["/one", "/two"]);
        assert_eq!(paths(&format!("{one}\n{}", &two[..20])), ["/one"]);
        assert!(paths("").is_empty());
    }
}
