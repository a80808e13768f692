// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that other processes can map: pools that only this process can write, control regions.
//!
//! Invariants
//! - After [`SealedPool::create`] no process can map the memory writable, not even one with the
//!   descriptor. No process can grow or truncate memory made here.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use ringtap_pool::format::Geometry;
use ringtap_pool::memory::Region;
use ringtap_pool::view::Pool;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

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

    /// Makes pools whose writable mappings lie side by side, followed by `more` bytes of this process:
    /// one piece of memory for its writer, of which a reader of a pool sees only that pool.
    ///
    /// # Errors
    ///
    /// As for [`SealedPool::create`]; all sizes are multiples of the page's size.
    pub fn side_by_side(geometries: &[Geometry], more: usize) -> io::Result<(Vec<Self>, Region)> {
        let mut files = Vec::new();
        for geometry in geometries {
            let bytes = geometry.region_bytes();
            let file = make(c"ringtap-pool", bytes)?;
            let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
            files.push((file, bytes));
        }
        let borrowed: Vec<_> = files
            .iter()
            .map(|(file, bytes)| (file.as_fd(), *bytes))
            .collect();
        let mapping = Arc::new(Mapping::side_by_side(&borrowed, more)?);
        let mut at = 0;
        let mut pools = Vec::new();
        for ((file, bytes), geometry) in files.into_iter().zip(geometries) {
            let part = mapping.part(at, bytes).ok_or(io::ErrorKind::InvalidInput)?;
            pools.push(SealedPool::finish(file, part, *geometry)?);
            at += bytes;
        }
        Ok((pools, mapping.region()))
    }

    /// Makes a pool of this file, of which `region` is the writable mapping.
    fn finish(file: OwnedFd, region: Region, geometry: Geometry) -> io::Result<Self> {
        let bytes = region.bytes();
        let writable = Pool::new(region, geometry).map_err(io::Error::other)?;
        // SAFETY: mapped writable just now, and not shared yet.
        unsafe { writable.write_header() };
        seal(&file, SealFlags::FUTURE_WRITE)?;
        let readable = Arc::new(Mapping::new(&file, bytes, Access::Read)?);
        Ok(SealedPool {
            writable,
            readable: Pool::new(readable.region(), geometry).map_err(io::Error::other)?,
            file: Arc::new(file),
        })
    }
}

impl SharedMemory {
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
    fn pools_side_by_side_are_one_mapping_and_each_is_sealed() {
        let geometry = Geometry::contiguous(4096, 4, 1, 100).unwrap();
        let (pools, all) = SealedPool::side_by_side(&[geometry; 2], 8192).unwrap();
        let pool_bytes = usize::try_from(geometry.region_bytes()).unwrap();
        assert_eq!(all.bytes(), 2 * pool_bytes + 8192);
        for (number, pool) in pools.iter().enumerate() {
            let begins = pool.writable.region().address().addr().get();
            assert_eq!(begins - all.address().addr().get(), number * pool_bytes);
            assert_eq!(pool.readable.geometry(), &geometry);
            assert!(Mapping::new(&*pool.file, 4096, Access::ReadWrite).is_err());
        }
        assert!(SealedPool::side_by_side(&[geometry], 100).is_err());
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
