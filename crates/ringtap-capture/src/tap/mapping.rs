// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings of the tap's maps: the unsafe part of sharing memory with the eBPF program.
//!
//! Invariants
//! - A writable mapping of a map that will be frozen ends before this module's calls return.
//! - Views of a mapping hold it, so it stays mapped as long as they live.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use libbpf_rs::libbpf_sys;
use ringtap_pool::memory::{Region, Words};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// What a mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    ReadWrite,
}

/// A shared mapping of a map's values.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it only keeps an address range mapped; what lies there is reached through `Region` and
// `Words`, which have their own rules.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives no access to the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of a memory-mappable array.
    pub(super) fn new(map: &OwnedFd, bytes: usize, access: Access) -> io::Result<Self> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: the kernel chooses the place, so nothing that is mapped is replaced.
        let base = unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, map, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, bytes })
    }

    /// The whole mapping as a pool's region.
    pub(super) fn region(self: &Arc<Self>) -> Region {
        // SAFETY: mapped, page-aligned and readable until the owner, which is this mapping, is
        // dropped; this module gives out no references into a mapping.
        unsafe { Region::from_raw(self.base, self.bytes, self.owner()) }
    }

    /// `count` values of `T`, a struct or word of atomics, from byte `at` on.
    ///
    /// `None` if they would not lie in the mapping, or not be aligned.
    pub(super) fn words<T>(self: &Arc<Self>, at: usize, count: usize) -> Option<Words<T>> {
        const { assert!(align_of::<T>() <= 64) };
        let end = count.checked_mul(size_of::<T>())?.checked_add(at)?;
        if end > self.bytes || !at.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: just checked to lie in the mapping.
        let first = unsafe { self.base.add(at) };
        // SAFETY: mapped and aligned (checked above) until the owner is dropped. Readable, and
        // writable where this module's users store: they map control and recycle ring ReadWrite.
        Some(unsafe { Words::from_raw(first.cast(), count, self.owner()) })
    }

    fn owner(self: &Arc<Self>) -> ringtap_pool::memory::Owner {
        Arc::clone(self) as _
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size; every view holds this mapping, so none is left.
        // It cannot fail for a whole mapping, and there would be nothing to do about it.
        let _always_ok = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Lets `write` fill the first `bytes` bytes of a map that no program uses yet.
pub(super) fn fill(map: &OwnedFd, bytes: usize, write: impl FnOnce(&mut [u8])) -> io::Result<()> {
    let mapping = Mapping::new(map, bytes, Access::ReadWrite)?;
    // SAFETY: mapped and writable until `mapping` is dropped below; no program is attached and
    // nobody else knows of the map, so this is the only access.
    write(unsafe { std::slice::from_raw_parts_mut(mapping.base.as_ptr(), bytes) });
    Ok(())
}

/// Forbids every write to a map from user space, for ever; programs go on writing.
pub(super) fn freeze(map: &OwnedFd) -> io::Result<()> {
    // SAFETY: a plain system call on a descriptor that the caller keeps open.
    match unsafe { libbpf_sys::bpf_map_freeze(map.as_raw_fd()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
