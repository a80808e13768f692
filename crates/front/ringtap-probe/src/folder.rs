// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder for sockets of root's probe.

use std::path::PathBuf;

use ringtap_ipc::folder::{Folder, FolderError};

/// The folder for sockets of root's probe, in which the user that it becomes may remove them; `None` without root.
pub(crate) fn folder_of(becomes: Option<u32>) -> Result<Option<PathBuf>, FolderError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let root = Folder::for_root()?;
    let own = match becomes {
        None => root,
        Some(uid) => root.folder_for(&format!("probe-{uid}"), uid)?,
    };
    Ok(Some(own.path().to_owned()))
}
