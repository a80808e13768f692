// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings of the tap's maps, and what forbids them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

pub(crate) use ringtap_shared::mapping::{Access, Mapping, fill};

/// Forbids every write to a map from user space, for ever; programs go on writing.
pub(crate) fn freeze(map: &OwnedFd) -> io::Result<()> {
    // SAFETY: a plain system call on a descriptor that the caller keeps open.
    match unsafe { libbpf_sys::bpf_map_freeze(map.as_raw_fd()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
