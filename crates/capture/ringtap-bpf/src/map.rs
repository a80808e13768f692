// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps: their mappings, and descriptors that cannot write.

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

pub use ringtap_ipc::mapping::{Access, Mapping, fill};

/// Permanently forbids writes to a map from user space; programs can still write.
pub fn freeze(map: impl AsFd) -> io::Result<()> {
    // SAFETY: a plain system call on a descriptor that the caller keeps open.
    match unsafe { libbpf_sys::bpf_map_freeze(map.as_fd().as_raw_fd()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Another descriptor of a map, for reading and waiting only.
pub fn read_only(map: impl AsFd) -> io::Result<OwnedFd> {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut bytes = u32::try_from(size_of_val(&info)).map_err(io::Error::other)?;
    let checked = |code: i32| match code {
        0.. => Ok(code),
        error => Err(io::Error::from_raw_os_error(-error)),
    };
    // SAFETY: `info` is as long as `bytes` says, and outlives the call.
    checked(unsafe {
        libbpf_sys::bpf_map_get_info_by_fd(map.as_fd().as_raw_fd(), &raw mut info, &raw mut bytes)
    })?;
    let options = libbpf_sys::bpf_get_fd_by_id_opts {
        sz: u64::try_from(size_of::<libbpf_sys::bpf_get_fd_by_id_opts>())
            .map_err(io::Error::other)?,
        open_flags: libbpf_sys::BPF_F_RDONLY,
        ..Default::default()
    };
    // SAFETY: the options outlive the call.
    let fd =
        checked(unsafe { libbpf_sys::bpf_map_get_fd_by_id_opts(info.id, &raw const options) })?;
    // SAFETY: the kernel made this descriptor just now, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
