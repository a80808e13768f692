// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that other processes can map: pools that only this process can write, control regions.
//!
//! Invariants
//! - After [`SealedPool::create`] no process can map the memory writable, not even one with the
//!   descriptor; after [`SealedPool::for_other_user`] no process of another ordinary user can. No process can grow or truncate memory made here.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use ringtap_pool::format::Geometry;
use ringtap_pool::memory::Region;
use ringtap_pool::view::Pool;
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod, fcntl_add_seals,
    ftruncate, memfd_create, open,
};

use crate::mapping::{Access, Mapping};

/// A pool in a sealed memfd.
pub struct SealedPool {
    /// The only writable mapping, for the writer.
    pub writable: Pool,
    /// A read-only view, for readers in this process.
    pub readable: Pool,
    /// Descriptor for readers in other processes.
    pub file: Arc<OwnedFd>,
}

/// Memory that both a reader and the hub write.
pub struct SharedMemory {
    /// This process's mapping, zeroed.
    pub region: Region,
    /// Descriptor for the other process.
    pub file: OwnedFd,
}

impl SealedPool {
    /// Makes a pool of these sizes.
    ///
    /// # Errors
    ///
    /// The system's, when memory or descriptors are not enough.
    pub fn create(geometry: Geometry) -> io::Result<Self> {
        let bytes = geometry.region_bytes();
        let file = make(c"ringtap-pool", bytes)?;
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mapping = Arc::new(Mapping::new(&file, bytes, Access::ReadWrite)?);
        SealedPool::finish(file, mapping.region(), geometry)
    }

    /// A descriptor of memory with the size of such a pool and this content, which nobody can write.
    ///
    /// # Errors
    ///
    /// As for [`SealedPool::create`].
    pub fn filled(geometry: &Geometry, fill: impl FnOnce(&mut [u8])) -> io::Result<OwnedFd> {
        let bytes = geometry.region_bytes();
        let file = make(c"ringtap-pool", bytes)?;
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        crate::mapping::fill(&file, bytes, fill)?;
        seal(&file, SealFlags::WRITE)?;
        Ok(file)
    }

    /// Makes a pool for a reader of another user, whose memory [`Reclaimable`] frees although the
    /// reader still maps it.
    ///
    /// The kernel frees no part of a pool that is sealed against writing. Instead, the reader's
    /// descriptor is read-only, and only this process's user may open the file again.
    ///
    /// # Errors
    ///
    /// As for [`SealedPool::create`]; `/proc` is not mounted.
    pub fn for_other_user(geometry: Geometry) -> io::Result<(Self, Reclaimable)> {
        let bytes = geometry.region_bytes();
        let file = make(c"ringtap-pool", bytes)?;
        fchmod(&file, Mode::RUSR)?;
        seal(&file, SealFlags::empty())?;
        let size = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mapping = Arc::new(Mapping::new(&file, size, Access::ReadWrite)?);
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let read_only = open(again, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let pool = SealedPool::opened(mapping.region(), read_only, geometry)?;
        Ok((pool, Reclaimable { file, bytes }))
    }

    /// Makes a pool of this file, of which `region` is the writable mapping.
    fn finish(file: OwnedFd, region: Region, geometry: Geometry) -> io::Result<Self> {
        seal(&file, SealFlags::FUTURE_WRITE)?;
        SealedPool::opened(region, file, geometry)
    }

    /// The pool of a writable mapping that this process made, and a descriptor for readers.
    fn opened(region: Region, file: OwnedFd, geometry: Geometry) -> io::Result<Self> {
        let bytes = region.bytes();
        let writable = Pool::new(region, geometry).map_err(io::Error::other)?;
        // SAFETY: mapped writable just now, and not shared yet.
        unsafe { writable.write_header() };
        let readable = Arc::new(Mapping::new(&file, bytes, Access::Read)?);
        Ok(SealedPool {
            writable,
            readable: Pool::new(readable.region(), geometry).map_err(io::Error::other)?,
            file: Arc::new(file),
        })
    }
}

/// Memory that other processes may map as long as they like.
#[derive(Debug)]
pub struct Reclaimable {
    file: OwnedFd,
    bytes: u64,
}

impl Reclaimable {
    /// Frees the memory: processes that map it read zeros from then on.
    ///
    /// Waits for other system calls on the file. A process that may write the file, as a reader may its
    /// control region, can make this wait for ever.
    pub fn reclaim(self) {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Fails only for a file of length 0.
        let _empty = fallocate(&self.file, how, 0, self.bytes);
    }
}

impl SharedMemory {
    /// This memory, to be freed although the other process still maps it.
    ///
    /// # Errors
    ///
    /// The system's, when no descriptor is free.
    pub fn reclaimable(&self) -> io::Result<Reclaimable> {
        let file = self.file.try_clone()?;
        let bytes = u64::try_from(self.region.bytes()).map_err(io::Error::other)?;
        Ok(Reclaimable { file, bytes })
    }

    /// Makes this many bytes of zeroed memory.
    ///
    /// # Errors
    ///
    /// As for [`SealedPool::create`].
    pub fn create(bytes: usize) -> io::Result<Self> {
        let size = u64::try_from(bytes).map_err(io::Error::other)?;
        let file = make(c"ringtap-control", size)?;
        seal(&file, SealFlags::empty())?;
        let mapping = Arc::new(Mapping::new(&file, bytes, Access::ReadWrite)?);
        mapping.populate()?;
        Ok(SharedMemory {
            region: mapping.region(),
            file,
        })
    }
}

fn make(name: &std::ffi::CStr, bytes: u64) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes)?;
    Ok(file)
}

fn seal(file: &OwnedFd, more: SealFlags) -> io::Result<()> {
    let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL | more;
    Ok(fcntl_add_seals(file, seals)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_pool_cannot_be_mapped_writable_again() {
        let geometry = Geometry::contiguous(4096, 4, 1, 100).unwrap();
        let pool = SealedPool::create(geometry).unwrap();
        assert!(Mapping::new(&*pool.file, 4096, Access::ReadWrite).is_err());
        assert!(Mapping::new(&*pool.file, 4096, Access::Read).is_ok());
    }

    #[test]
    fn memory_of_another_user_is_freed_although_it_is_mapped() {
        let geometry = Geometry::contiguous(4096, 64, 1, 100).unwrap();
        let (pool, reclaimable) = SealedPool::for_other_user(geometry).unwrap();
        let bytes = pool.readable.region().bytes();
        crate::mapping::fill(&reclaimable.file, bytes, |memory| memory.fill(7)).unwrap();
        let blocks = || rustix::fs::fstat(&pool.file).unwrap().st_blocks;
        assert!(blocks() > 0);
        assert!(Mapping::new(&*pool.file, bytes, Access::ReadWrite).is_err());
        assert!(Mapping::from_peer(&*pool.file, bytes, Access::Read).is_ok());
        assert!(fcntl_add_seals(&*pool.file, SealFlags::WRITE).is_err());
        assert!(is_closed_to_others(&pool.file));
        reclaimable.reclaim();
        assert_eq!(blocks(), 0);
    }

    /// Whether only the owner may open the file, and only for reading.
    fn is_closed_to_others(file: &OwnedFd) -> bool {
        rustix::fs::fstat(file).unwrap().st_mode & 0o777 == 0o400
    }

    #[test]
    fn nothing_made_here_can_be_cut_under_a_mapping() {
        let memory = SharedMemory::create(8192).unwrap();
        assert!(ftruncate(&memory.file, 4096).is_err());
        assert!(ftruncate(&memory.file, 16384).is_err());
    }

    #[test]
    fn readers_see_the_header_that_was_written() {
        let geometry = Geometry::contiguous(4096, 4, 1, 100).unwrap();
        let pool = SealedPool::create(geometry).unwrap();
        assert_eq!(pool.readable.geometry(), pool.writable.geometry());
    }
}
