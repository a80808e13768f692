// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copy of a library in memory, for processes whose user may not read its file.

use std::fs::{File, read};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// Copies the file, with the rights of this process. Nobody can change the copy.
pub(super) fn copy(library: &Path) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut memory = File::from(memfd_create("library", flags)?);
    memory.write_all(&read(library)?)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&memory, seals)?;
    Ok(memory.into())
}

/// Path by which this process loads the library: its own if the file is readable, so that it finds other libraries
/// beside it; else that of the copy.
pub(super) fn loadable(library: &Path, copy: &OwnedFd) -> PathBuf {
    match File::open(library) {
        Ok(_) => library.to_owned(),
        Err(_) => format!("/proc/self/fd/{}", copy.as_raw_fd()).into(),
    }
}
