// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stores the settings that a capture changes, so that the next start restores them after a kill.
//!
//! Each process keeps one file below `/run/ringtap-root/settings` locked. An unlocked file belongs to a
//! process that was killed.
//!
//! Invariants
//! - A setting is in the file before it is changed.
//! - Settings of other network namespaces stay unchanged: here their names mean other interfaces.
//! - Root obeys no file that another user could have written, and a file names nothing but the settings
//!   that a capture changes.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ringtap_ipc::folder::{Folder, FolderError, ROOT_FOLDER};
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::interrupts::Setting;

const FOLDER: &str = "/run/ringtap-root/settings";
/// Most bytes of a file that are read: settings of some thousand interrupts.
const MAX_BYTES: u64 = 1024 * 1024;

/// One line of the file: a setting as it was before the change.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SettingLine {
    /// Inode of the network namespace.
    namespace: u64,
    setting: Setting,
}

/// The settings that this process changes.
pub(super) struct StateFile {
    folder: Folder,
    name: OsString,
    file: File,
    namespace: u64,
}

impl StateFile {
    /// Creates the file; call this before the first change.
    pub(super) fn create() -> io::Result<Self> {
        let name = OsString::from(std::process::id().to_string());
        let folder = make_folder()?;
        let file = folder.append(&name)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self {
            folder,
            name,
            file,
            namespace: own_namespace()?,
        })
    }

    /// Stores a setting before it is changed.
    pub(super) fn keep(&mut self, setting: &Setting) -> io::Result<()> {
        let line = SettingLine {
            namespace: self.namespace,
            setting: setting.clone(),
        };
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        self.file.write_all(&bytes)
    }

    /// Removes the file, once all settings are restored.
    pub(super) fn remove(self) {
        let _gone = self.folder.remove(&self.name);
    }
}

/// The folder, which is created if it does not exist.
pub(super) fn make_folder() -> Result<Folder, FolderError> {
    let _above = Folder::for_root()?;
    let folder = Folder::open_or_create(Path::new(FOLDER), 0o700)?;
    folder.require_own()?;
    Ok(folder)
}

/// Restores settings of this network namespace that killed processes changed; `note` gets what was done.
pub(super) fn restore(note: &mut dyn FnMut(String)) {
    // Only root changes settings, and only its files are there.
    if !geteuid().is_root() {
        return;
    }
    let folder = || {
        Folder::open(Path::new(ROOT_FOLDER))?.require_own()?;
        let folder = Folder::open(Path::new(FOLDER))?;
        folder.require_own()?;
        Ok::<_, FolderError>((folder.names()?, folder))
    };
    let (names, folder) = match folder() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => return note(refusal(&error)),
    };
    let Ok(namespace) = own_namespace() else {
        return;
    };
    for name in names {
        match folder.open_own(&name) {
            Ok(file) => restore_from(&folder, &name, &file, namespace, note),
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => note(refusal(&error)),
        }
    }
}

fn refusal(error: &FolderError) -> String {
    format!("{error}: no setting is restored from there")
}

/// Restores the settings in a file of a process that has ended, and removes the file.
fn restore_from(
    folder: &Folder,
    name: &OsStr,
    file: &File,
    namespace: u64,
    note: &mut dyn FnMut(String),
) {
    // Only a process that has ended leaves the lock free.
    if flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    let mut text = Vec::new();
    let _cut = file.take(MAX_BYTES).read_to_end(&mut text);
    let (lines, refused) = lines_of(&text);
    if refused > 0 {
        note(format!(
            "{}: {refused} lines are no settings that ringtap changes: ignored",
            folder.path().join(name).display()
        ));
    }
    if !lines.iter().all(|line| line.namespace == namespace) {
        return;
    }
    for line in lines.into_iter().rev() {
        put_back(&line.setting).into_iter().for_each(&mut *note);
    }
    let _gone = folder.remove(name);
}

fn put_back(setting: &Setting) -> Option<String> {
    let (path, was) = (setting.path(), &setting.text);
    let begin = format!("a capture that was killed had changed {}", path.display());
    match setting.put_back() {
        Ok(()) => Some(format!("{begin}: restored to {was}")),
        // The interface is gone, and its settings with it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(format!(
            "{begin} from {was}, which cannot be restored: {error}"
        )),
    }
}

/// The settings in the complete lines of a file, and the number of lines that are none. The setting of an
/// incomplete line was not changed.
fn lines_of(text: &[u8]) -> (Vec<SettingLine>, usize) {
    let complete = text
        .split_inclusive(|byte| *byte == b'\n')
        .filter_map(|line| line.strip_suffix(b"\n"));
    let mut refused = 0;
    let parsed = complete.filter_map(|line| {
        let line: Option<SettingLine> = serde_json::from_slice(line).ok();
        let line = line.filter(|line| line.setting.is_usual());
        refused += usize::from(line.is_none());
        line
    });
    (parsed.collect(), refused)
}

fn own_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/net")?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_left_out() {
        let one = r#"{"namespace":7,"setting":{"name":{"irq":38},"text":"0"}}"#;
        let two = r#"{"namespace":7,"setting":{"name":{"threaded":"eth0"},"text":"1"}}"#;
        let found = |text: &str| {
            let (lines, refused) = lines_of(text.as_bytes());
            let paths = lines
                .iter()
                .map(|line| line.setting.path().display().to_string());
            (paths.collect::<Vec<_>>(), refused)
        };
        let paths = [
            "/proc/irq/38/smp_affinity_list",
            "/sys/class/net/eth0/threaded",
        ];
        let all = paths.map(str::to_owned);
        assert_eq!(found(&format!("{one}\n{two}\n")), (all.to_vec(), 0));
        assert_eq!(
            found(&format!("{one}\n{}", &two[..20])),
            (all[..1].to_vec(), 0)
        );
        assert_eq!(found(""), (vec![], 0));
    }

    #[test]
    fn a_line_that_names_anything_else_is_counted_and_left_out() {
        for line in [
            r#"{"namespace":7,"path":"/etc/passwd","text":"0"}"#,
            r#"{"namespace":7,"setting":{"name":{"threaded":"../../../tmp/x"},"text":"1"}}"#,
            r#"{"namespace":7,"setting":{"name":{"threaded":"eth0"},"text":"owned"}}"#,
            r#"{"namespace":7,"setting":{"name":{"irq":38},"text":"0\nroot::0:0"}}"#,
        ] {
            assert_eq!(
                lines_of(format!("{line}\n").as_bytes()),
                (vec![], 1),
                "{line}"
            );
        }
    }
}
