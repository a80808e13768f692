// SPDX-License-Identifier: MIT OR Apache-2.0
//! New memory of a pool whose readers go on: the device with its memory was plugged or unplugged.
#![allow(unsafe_code, reason = "replaces mappings")]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringtap_pool::memory::Region;
use serde::{Deserialize, Serialize};

use crate::mapping::replace;

/// Other memory of a pool, as descriptors.
#[derive(Clone, Debug)]
pub struct PoolMemory {
    /// Number of the memory at its hub, from 1 on.
    pub number: u32,
    /// The memory, and where in it the pool begins.
    pub file: (Arc<OwnedFd>, u64),
    /// Memory of the size of the pool that has what readers held before, in these bytes of the pool.
    pub kept: Option<(Arc<OwnedFd>, Vec<Range<usize>>)>,
}

/// The answer to `memory`, without its descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryAnswer {
    /// See [`PoolMemory::number`].
    pub number: u32,
    /// Where in the first descriptor's memory the pool begins.
    pub offset: u64,
    /// Bytes of the pool that are in the second descriptor's memory, at the same place.
    pub kept: Vec<[usize; 2]>,
}

impl PoolMemory {
    /// The message and descriptors for another process.
    pub fn answer(&self) -> (MemoryAnswer, Vec<BorrowedFd<'_>>) {
        let mut fds = vec![self.file.0.as_fd()];
        let kept = self.kept.iter().flat_map(|(file, parts)| {
            fds.push(file.as_fd());
            parts.iter().map(|part| [part.start, part.end])
        });
        let answer = MemoryAnswer {
            number: self.number,
            offset: self.file.1,
            kept: kept.collect(),
        };
        (answer, fds)
    }

    /// The memory that a hub sent; `None` without its descriptors.
    pub fn from_peer(answer: MemoryAnswer, fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter().map(Arc::new);
        let file = fds.next()?;
        let parts = answer.kept.into_iter().map(|[start, end]| start..end);
        let parts: Vec<_> = parts.collect();
        Some(PoolMemory {
            number: answer.number,
            file: (file, answer.offset),
            kept: match fds.next() {
                None if parts.is_empty() => None,
                kept => Some((kept?, parts)),
            },
        })
    }

    /// Maps the memory in place of a pool's mapping.
    ///
    /// # Errors
    ///
    /// The system's; [`io::ErrorKind::InvalidData`] for memory that could be cut or is too short.
    ///
    /// # Safety
    ///
    /// The region is a whole mapping of the module [`mapping`](crate::mapping), and what code of this process
    /// borrows of it has the same content in the new memory.
    pub unsafe fn map_over(&self, region: &Region) -> io::Result<()> {
        let kept = self.kept.iter();
        let parts =
            kept.flat_map(|(file, parts)| parts.iter().map(|part| (file.as_fd(), part.clone())));
        let (file, offset) = &self.file;
        // SAFETY: by the caller's promise.
        unsafe { replace(region, (file.as_fd(), *offset), &parts.collect::<Vec<_>>()) }
    }
}
