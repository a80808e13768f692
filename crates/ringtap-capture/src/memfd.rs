// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pools of sources in user space: a sealed memfd that only its writer can write.
//!
//! Invariants
//! - After [`SealedPool::create`] nobody can map the memory writable any more, whoever gets the
//!   descriptor, and its size cannot change.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ringtap_pool::format::Geometry;
use ringtap_pool::memory::Region;
use ringtap_pool::view::Pool;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A pool in a sealed memfd.
pub(crate) struct SealedPool {
    /// For the writer: the only writable mapping there is.
    pub(crate) writable: Pool,
    /// For readers.
    pub(crate) readable: Pool,
}

impl SealedPool {
    /// Makes a pool of these sizes.
    ///
    /// # Errors
    ///
    /// The system's, when there is not enough memory or no descriptor is free.
    pub(crate) fn create(geometry: Geometry) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create(c"ringtap-pool", flags)?;
        let bytes = geometry.region_bytes();
        ftruncate(&file, bytes)?;
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let writable = pool(&file, bytes, ProtFlags::READ | ProtFlags::WRITE, geometry)?;
        // SAFETY: mapped writable just now, and nobody else knows of it yet.
        unsafe { writable.write_header() };
        let seals = SealFlags::FUTURE_WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        let readable = pool(&file, bytes, ProtFlags::READ, geometry)?;
        Ok(SealedPool { writable, readable })
    }
}

fn pool(file: &OwnedFd, bytes: usize, access: ProtFlags, geometry: Geometry) -> io::Result<Pool> {
    let mapping = Arc::new(Mapping::new(file, bytes, access)?);
    // SAFETY: mapped until `mapping` is dropped, page-aligned, and no reference leads there.
    let region = unsafe { Region::from_raw(mapping.base.cast(), bytes, mapping) };
    Pool::new(region, geometry).map_err(io::Error::other)
}

struct Mapping {
    base: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: an address range of the process, not tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; what is done there is settled by `ringtap_pool`.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &OwnedFd, bytes: usize, access: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                access,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )
        }?;
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; every user of the range held this owner.
        let _unmapped = unsafe { munmap(self.base.as_ptr(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_pool_cannot_be_mapped_writable_again() {
        let geometry = Geometry::contiguous(4096, 4, 1, 100).unwrap();
        let file = memfd_create(c"test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, geometry.region_bytes()).unwrap();
        fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).unwrap();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        assert!(Mapping::new(&file, 4096, both).is_err());
        assert!(Mapping::new(&file, 4096, ProtFlags::READ).is_ok());
    }

    #[test]
    fn readers_see_the_header_that_was_written() {
        let geometry = Geometry::contiguous(4096, 4, 1, 100).unwrap();
        let pool = SealedPool::create(geometry).unwrap();
        assert_eq!(pool.readable.geometry(), pool.writable.geometry());
    }
}
