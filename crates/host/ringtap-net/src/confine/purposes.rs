// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process keeps that captures, reads or records.

use std::path::{Path, PathBuf};

use ringtap_ipc::folder::ROOT_FOLDER;
use rustix::process::geteuid;
use rustix::thread::CapabilitySet;

use super::{Confinement, User};
use crate::affinity::Placement;
use crate::rights::WHILE_CAPTURING;

/// Folders in which a recorder restores interrupts and NAPI, and forgets what they were.
const SETTINGS: [&str; 3] = ["/proc/irq", "/sys", ROOT_FOLDER];

impl Confinement {
    /// Keeps what a capture of interfaces takes, if there are any, and restoring what the placement changes.
    #[must_use]
    pub fn capturing(has_interface: bool, cpu: &Placement) -> Self {
        let mut keeps = CapabilitySet::empty();
        keeps.set(WHILE_CAPTURING, has_interface);
        keeps.set(CapabilitySet::SYS_NICE, cpu.moves_interrupts());
        Confinement::keeping(keeps)
    }

    /// Keeps what writing files beside `output` takes, without a device.
    #[must_use]
    pub fn writing_beside(output: &Path) -> Self {
        Confinement {
            writes_below: folders(&output.to_string_lossy()),
            // Root may write into a folder of another user.
            ..Confinement::keeping(CapabilitySet::DAC_OVERRIDE)
        }
    }

    /// Keeps what writing files in these folders and below them takes, without a device.
    #[must_use]
    pub fn writing_below(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        Confinement {
            writes_below: Some(folders.into_iter().collect()),
            // Root may write into a folder of another user.
            ..Confinement::keeping(CapabilitySet::DAC_OVERRIDE)
        }
    }

    /// For the reader of a file: root becomes a user without files, and nothing changes outside of the process.
    #[must_use]
    pub fn only_reading(mut self) -> Self {
        let is_root = geteuid().is_root();
        self.user = self.user.or_else(|| is_root.then(User::nameless));
        self.only_reads = true;
        self
    }

    /// For a recorder that creates `file`, and others with names like it.
    #[must_use]
    pub fn recording(mut self, file: &str, cpu: &Placement) -> Self {
        if self.user.is_none() {
            // Root may record into a folder of another user, the next file as well as the first.
            self.keeps |= CapabilitySet::DAC_OVERRIDE;
        }
        self.writes_below = folders(file);
        if let Some(below) = &mut self.writes_below
            && cpu.moves_interrupts()
        {
            below.extend(SETTINGS.map(PathBuf::from));
        }
        self
    }
}

/// Folders in which a recorder writes; `None` if the name does not tell.
fn folders(file: &str) -> Option<Vec<PathBuf>> {
    if file == "-" {
        return Some(Vec::new());
    }
    let path = Path::new(file);
    // A link, or a device such as /dev/stdout, leads elsewhere.
    let is_plain = path.symlink_metadata().map_or(true, |it| it.is_file());
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return None,
    };
    let tells = is_plain && !folder.to_string_lossy().contains('%') && folder.is_dir();
    tells.then(|| vec![folder.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_writes_in_the_folder_of_its_files() {
        assert_eq!(folders("x.pcapng"), Some(vec![".".into()]));
        assert_eq!(folders("/tmp/x-%H.pcapng"), Some(vec!["/tmp".into()]));
        assert_eq!(folders("-"), Some(Vec::new()));
        for elsewhere in ["/dev/stdout", "/tmp/%H/x.pcapng", "/no such folder/x", "/"] {
            assert_eq!(folders(elsewhere), None, "{elsewhere}");
        }
    }
}
