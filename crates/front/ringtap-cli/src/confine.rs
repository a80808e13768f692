// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives up the rights of a verb once its devices are open: `-Z USER`, capabilities, system calls.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Args;
use ringtap::{CapabilitySet, Confinement, User, WHILE_CAPTURING};
use ringtap_device::Kind;
use ringtap_ipc::folder::ROOT_FOLDER;
use ringtap_net::affinity::Placement;

use crate::UsageError;
use crate::input::InputArgs;

const ONLY_ROOT: &str =
    "-Z: only root can put interrupts and NAPI back: leave out irq= and napi= of --cpu";

/// Folders in which a recorder restores interrupts and NAPI, and forgets what they were.
const SETTINGS: [&str; 3] = ["/proc/irq", "/sys", ROOT_FOLDER];

/// User that a verb becomes.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct UserArgs {
    /// Become USER once the devices are open; files are created as USER.
    #[arg(short = 'Z', long = "relinquish-privileges", value_name = "USER")]
    user: Option<User>,
}

impl UserArgs {
    pub(crate) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// What a verb with these devices keeps.
    ///
    /// # Errors
    ///
    /// Only root can restore what the placement changes.
    pub(crate) fn keeping(
        &self,
        devices: impl IntoIterator<Item = &'static Kind>,
        cpu: &Placement,
    ) -> Result<Confinement> {
        ensure!(
            self.user.is_none() || !cpu.moves_interrupts(),
            UsageError(ONLY_ROOT.to_owned())
        );
        let captures = devices.into_iter().any(Kind::names_an_interface);
        let mut keeps = CapabilitySet::empty();
        keeps.set(WHILE_CAPTURING, captures);
        keeps.set(CapabilitySet::SYS_NICE, cpu.moves_interrupts());
        Ok(Confinement {
            user: self.user.clone(),
            ..Confinement::keeping(keeps)
        })
    }

    /// What a verb keeps that writes nothing but its standard output. The reader of a file becomes a user without
    /// files if it is root, and changes nothing outside of its process.
    pub(crate) fn reading(&self, input: &InputArgs, cpu: &Placement) -> Result<Confinement> {
        let mut keeps = self.keeping(input.kind(), cpu)?;
        if input.file().is_some() {
            let is_root = rustix::process::geteuid().is_root();
            keeps.user = keeps.user.or_else(|| is_root.then(User::nameless));
            keeps.only_reads = true;
        }
        Ok(keeps)
    }

    /// What a recorder keeps, which creates `file`, and others with names like it.
    pub(crate) fn recording(
        &self,
        device: Option<&'static Kind>,
        cpu: &Placement,
        file: &str,
    ) -> Result<Confinement> {
        let mut keeps = self.keeping(device, cpu)?;
        if self.user.is_none() {
            // Root may record into a folder of another user, the next file as well as the first.
            keeps.keeps |= CapabilitySet::DAC_OVERRIDE;
        }
        keeps.writes_below = folders(file);
        if cpu.moves_interrupts() {
            let settings = SETTINGS.iter().map(PathBuf::from);
            keeps
                .writes_below
                .iter_mut()
                .for_each(|all| all.extend(settings.clone()));
        }
        Ok(keeps)
    }
}

/// What a verb keeps that writes files beside `output`, and has no device.
pub(crate) fn writing_beside(output: &Path) -> Confinement {
    Confinement {
        writes_below: folders(&output.to_string_lossy()),
        // Root may write into a folder of another user.
        ..Confinement::keeping(CapabilitySet::DAC_OVERRIDE)
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
