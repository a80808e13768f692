// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared mappings of descriptors: the unsafe part of sharing memory between processes.
//!
//! Invariants
//! - Views of a mapping hold it, so it stays mapped as long as they live.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ringtap_pool::memory::{Owner, Region, Words};
use ringtap_pool::number::to_u64;
use rustix::fs::{FileType, SealFlags, fcntl_get_seals, fstat, fstatfs};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::param::page_size;

/// File system of the memory of PCI devices.
const SYSFS_MAGIC: i64 = 0x6265_6572;

/// The access that a mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads only.
    Read,
    /// Loads and stores.
    ReadWrite,
}

/// A shared mapping of the first bytes of a file or BPF map.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the type only keeps an address range mapped. `Region` and `Words`, which have their own
// rules, access the memory.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives no access to the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes.
    ///
    /// # Errors
    ///
    /// The system's: no memory, or the access is not allowed (a frozen map, a sealed memfd).
    pub fn new(file: impl AsFd, bytes: usize, access: Access) -> io::Result<Self> {
        Mapping::at(file, 0, bytes, access)
    }

    /// Makes the memory of all pages now, so that no later store waits for memory or fails.
    ///
    /// # Errors
    ///
    /// The system's, when memory is not enough. Kernels before 5.14 make each page at its first use.
    pub(crate) fn populate(&self) -> io::Result<()> {
        // SAFETY: the whole range is mapped; the call changes no content.
        let made = unsafe {
            madvise(
                self.base.as_ptr().cast(),
                self.bytes,
                Advice::LinuxPopulateWrite,
            )
        };
        match made {
            Err(Errno::INVAL) => Ok(()),
            made => Ok(made?),
        }
    }

    /// Maps `bytes` bytes from `offset` on, which is a multiple of the page size.
    ///
    /// # Errors
    ///
    /// As for [`Mapping::new`].
    pub fn at(file: impl AsFd, offset: u64, bytes: usize, access: Access) -> io::Result<Self> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: the kernel chooses the address, so no other mapping is replaced.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                file,
                offset,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, bytes })
    }

    /// Maps the first `bytes` bytes of a file that another process sent.
    ///
    /// # Errors
    ///
    /// As for [`Mapping::from_peer_at`].
    pub fn from_peer(file: impl AsFd, bytes: usize, access: Access) -> io::Result<Self> {
        Mapping::from_peer_at(file, 0, bytes, access)
    }

    /// Maps `bytes` bytes from `offset` on of a file that another process sent: a memory file, a BPF map or
    /// the memory of a PCI device.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] for a file that is shorter or can be truncated: access past the
    /// end of the file would kill this process. Otherwise as for [`Mapping::new`].
    pub fn from_peer_at(
        file: impl AsFd,
        offset: u64,
        bytes: usize,
        access: Access,
    ) -> io::Result<Self> {
        check_peer(&file, offset, bytes)?;
        Mapping::at(file, offset, bytes, access)
    }

    /// The `bytes` bytes from `at`, a multiple of 8, as a region; `None` if they are not all mapped.
    /// See [`Mapping::region`].
    pub fn part(self: &Arc<Self>, at: usize, bytes: usize) -> Option<Region> {
        if at.checked_add(bytes)? > self.bytes || !at.is_multiple_of(8) {
            return None;
        }
        // SAFETY: the check above shows that it lies in the mapping.
        let first = unsafe { self.base.add(at) };
        // SAFETY: as in `region`.
        Some(unsafe { Region::from_raw(first, bytes, self.owner()) })
    }

    /// The whole mapping as a region. To store there, it must be mapped [`Access::ReadWrite`]. The file
    /// must not become shorter.
    pub fn region(self: &Arc<Self>) -> Region {
        // SAFETY: mapped, page-aligned and readable until the owner, which is this mapping, is
        // dropped; this module gives out no references into a mapping.
        unsafe { Region::from_raw(self.base, self.bytes, self.owner()) }
    }

    /// `count` values of `T`, a struct or word of atomics, from byte `at` on; `None` if they lie outside
    /// the mapping or are not aligned.
    pub fn words<T>(self: &Arc<Self>, at: usize, count: usize) -> Option<Words<T>> {
        const { assert!(align_of::<T>() <= 64) };
        let end = count.checked_mul(size_of::<T>())?.checked_add(at)?;
        if end > self.bytes || !at.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: the check above shows that it lies in the mapping.
        let first = unsafe { self.base.add(at) };
        // SAFETY: mapped and aligned (checked above) until the owner is dropped. Readable, and
        // writable where callers store: they map that memory ReadWrite.
        Some(unsafe { Words::from_raw(first.cast(), count, self.owner()) })
    }

    fn owner(self: &Arc<Self>) -> Owner {
        Arc::clone(self) as _
    }
}

/// Checks that no access to these bytes of a file that another process sent can kill this process.
fn check_peer(file: impl AsFd, offset: u64, bytes: usize) -> io::Result<()> {
    let refused = |text| io::Error::new(io::ErrorKind::InvalidData, text);
    let stat = fstat(&file)?;
    // The kernel maps a BPF map whole or not at all.
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Ok(());
    }
    // The kernel zaps a device's memory, or lets it read as zeros, but never cuts it.
    if fstatfs(&file)?.f_type != SYSFS_MAGIC {
        let seals = fcntl_get_seals(&file).map_err(|_| refused("a file instead of memory"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(refused("memory that could be cut"));
        }
    }
    let end = offset.checked_add(to_u64(bytes));
    let have = u64::try_from(stat.st_size).unwrap_or(0);
    if end.is_some_and(|end| end <= have) {
        Ok(())
    } else {
        Err(refused("less memory than the sender stated"))
    }
}

/// Maps other files read-only in place of a mapping of this module: the first from its offset on over the whole of it, the
/// others over parts of it, each from the offset that is the part's own.
///
/// # Errors
///
/// As for [`Mapping::from_peer_at`]; of the mapping, some parts may be replaced then.
///
/// # Safety
///
/// The region is a whole mapping of this module. What code of this process borrows of it has the same content in
/// the new files.
pub unsafe fn replace(
    region: &Region,
    (file, offset): (BorrowedFd<'_>, u64),
    parts: &[(BorrowedFd<'_>, Range<usize>)],
) -> io::Result<()> {
    let all = (file, 0..region.bytes(), offset);
    let own = parts
        .iter()
        .map(|(file, part)| (*file, part.clone(), to_u64(part.start)));
    for (file, part, offset) in [all].into_iter().chain(own) {
        if part.start >= part.end
            || part.end > region.bytes()
            || !part.start.is_multiple_of(page_size())
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let bytes = part.end - part.start;
        check_peer(file, offset, bytes)?;
        // SAFETY: just checked to lie within the region.
        let place = unsafe { region.address().add(part.start) }.as_ptr().cast();
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: replaces pages of a mapping, by the caller's promise; a thread that loads meanwhile waits.
        unsafe { mmap(place, bytes, ProtFlags::READ, flags, file, offset) }?;
    }
    Ok(())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size; every view holds this mapping, so no view is left.
        // For a whole mapping the call cannot fail.
        let _always_ok = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Passes the first `bytes` bytes of a file that is not shared yet to `write`, which fills them.
///
/// # Errors
///
/// As for [`Mapping::new`].
pub fn fill(file: impl AsFd, bytes: usize, write: impl FnOnce(&mut [u8])) -> io::Result<()> {
    let mapping = Mapping::new(file, bytes, Access::ReadWrite)?;
    // SAFETY: mapped and writable until `mapping` is dropped below; the caller guarantees that the
    // file is not shared, so this is the only access.
    write(unsafe { std::slice::from_raw_parts_mut(mapping.base.as_ptr(), bytes) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memfd::SharedMemory;

    #[test]
    fn what_could_be_cut_or_is_too_short_is_not_mapped() {
        let memory = SharedMemory::create(8192).unwrap();
        assert!(Mapping::from_peer(&memory.file, 8192, Access::Read).is_ok());
        assert!(Mapping::from_peer(&memory.file, 8193, Access::Read).is_err());
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        assert!(Mapping::from_peer(&file, 4096, Access::Read).is_err());
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
        let unsealed = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&unsealed, 8192).unwrap();
        assert!(Mapping::from_peer(&unsealed, 4096, Access::Read).is_err());
    }

    #[test]
    fn parts_and_words_lie_inside_and_are_aligned() {
        let memory = SharedMemory::create(8192).unwrap();
        let mapping = Arc::new(Mapping::new(&memory.file, 8192, Access::ReadWrite).unwrap());
        for (at, bytes, fits) in [
            (0, 8192, true),
            (4096, 4096, true),
            (8, 8184, true),
            (4, 8, false),
            (4096, 4104, false),
            (usize::MAX - 7, 8, false),
        ] {
            let part = mapping.part(at, bytes);
            assert_eq!(part.is_some(), fits, "{bytes} bytes from {at}");
            assert!(part.is_none_or(|part| part.bytes() == bytes));
        }
        let words = |at, count| {
            mapping
                .words::<std::sync::atomic::AtomicU32>(at, count)
                .is_some()
        };
        assert!(words(8188, 1) && words(4, 2));
        assert!(!words(8188, 2) && !words(2, 1) && !words(0, usize::MAX / 2));
    }
}
