// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps: creating them, their mappings and keys, and descriptors that cannot write.

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{MapCore, MapHandle, MapType, libbpf_sys};

use crate::object::io_error;

pub use ringtap_ipc::mapping::{Access, Mapping, fill};

/// Sizes of a new map.
#[derive(Clone, Copy, Debug)]
pub struct MapSizes {
    /// Bytes of a key.
    pub key: usize,
    /// Bytes of a value.
    pub value: usize,
    /// Maximum number of entries.
    pub entries: u32,
}

/// Creates a map; `flags` are `BPF_F_*`.
pub fn create(kind: MapType, name: &str, sizes: MapSizes, flags: u32) -> io::Result<MapHandle> {
    let bytes = |count: usize| u32::try_from(count).map_err(io::Error::other);
    let options = libbpf_sys::bpf_map_create_opts {
        sz: libbpf_sys::size_t::try_from(size_of::<libbpf_sys::bpf_map_create_opts>())
            .map_err(io::Error::other)?,
        map_flags: flags,
        ..Default::default()
    };
    let (key, value) = (bytes(sizes.key)?, bytes(sizes.value)?);
    let map = MapHandle::create(kind, Some(name), key, value, sizes.entries, &options);
    map.map_err(|error| io_error(&error))
}

/// The key behind `after` in the map's own order; the first one without `after`, or if it is not in the map any more.
/// `None` behind the last one.
///
/// # Errors
///
/// A key of another length, or the system's.
pub fn next_key(map: &MapHandle, after: Option<&[u8]>) -> io::Result<Option<Vec<u8>>> {
    let bytes = usize::try_from(map.key_size()).map_err(io::Error::other)?;
    if after.is_some_and(|key| key.len() != bytes) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut next = vec![0; bytes];
    let after = after.map_or(std::ptr::null(), <[u8]>::as_ptr);
    // SAFETY: the keys are as long as the map's, or absent, and outlive the call.
    let code = unsafe {
        libbpf_sys::bpf_map_get_next_key(
            map.as_fd().as_raw_fd(),
            after.cast(),
            next.as_mut_ptr().cast(),
        )
    };
    match code {
        0 => Ok(Some(next)),
        error if -error == libc::ENOENT => Ok(None),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

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
