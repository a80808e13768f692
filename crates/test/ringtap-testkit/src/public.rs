// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy of a program that every user can run, wherever the tests were built.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// User and group without rights: `nobody`.
pub const NOBODY: u32 = 65_534;

/// A copy of a program in a folder of its own that every user may enter and write.
///
/// The folder is removed when this is dropped.
#[derive(Debug)]
pub struct PublicProgram {
    folder: TempDir,
    path: PathBuf,
}

impl PublicProgram {
    /// Copies `program`.
    ///
    /// # Panics
    ///
    /// When the copy cannot be made.
    #[must_use]
    pub fn copy_of(program: impl AsRef<Path>) -> Self {
        let folder = TempDir::new().expect("a folder can be made");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777))
            .expect("the own folder's mode can be set");
        let program = program.as_ref();
        let path = folder.path().join(program.file_name().expect("a file"));
        fs::copy(program, &path).expect("the program can be copied");
        Self { folder, path }
    }

    /// The copy.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program as `nobody` runs it, in that folder.
    #[must_use]
    pub fn as_nobody(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(self.folder()).uid(NOBODY).gid(NOBODY);
        command
    }
}
