// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory shared with the kernel: a ring of blocks, each owned by one side.
//!
//! Invariants
//! - A block is read only between the kernel's "user" status and its return to the kernel.
//! - Blocks are read in order, as the kernel fills them.
#![allow(unsafe_code, reason = "shared memory of the kernel")]

use std::{
    ffi::c_void,
    io,
    os::fd::AsFd,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{options::RingLayout, socket::PacketSocket};

/// Offset of the owner in a block's header.
const BLOCK_STATUS: usize = 8;
const OWNED_BY_KERNEL: u32 = 0;
const OWNED_BY_USER: u32 = 1;

/// The mapped ring.
pub(super) struct Ring {
    base: NonNull<u8>,
    block_bytes: usize,
    block_count: usize,
    next: usize,
}

// SAFETY: an address range of the process, not tied to a thread; used by one thread at a time.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of the socket.
    pub(super) fn map(socket: &PacketSocket, layout: &RingLayout) -> io::Result<Self> {
        let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        let block_bytes = usize::try_from(layout.block_bytes).map_err(too_large)?;
        let block_count = usize::try_from(layout.block_count).map_err(too_large)?;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                block_bytes * block_count,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                socket.as_fd(),
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            base,
            block_bytes,
            block_count,
            next: 0,
        })
    }

    /// Passes the next block to `read` if the kernel has finished it, then returns it to the kernel.
    pub(super) fn take<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        // SAFETY: `next` is below `block_count`, so the block lies inside the mapping.
        let block = unsafe { self.base.add(self.next * self.block_bytes) };
        // SAFETY: inside the block, which is larger than its header.
        let status = unsafe { block.add(BLOCK_STATUS) }.cast::<AtomicU32>();
        // SAFETY: aligned, as the block begins a page; both sides access it atomically only.
        let status = unsafe { status.as_ref() };
        // Pairs with the kernel's barrier before it hands the block over.
        if status.load(Ordering::Acquire) & OWNED_BY_USER == 0 {
            return None;
        }
        // SAFETY: the kernel does not touch a block that is ours, until the store below.
        let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), self.block_bytes) };
        let result = read(bytes);
        // Pairs with the kernel's read of the status: our reads precede its next writes.
        status.store(OWNED_BY_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.block_count;
        Some(result)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let base = self.base.as_ptr().cast::<c_void>();
        // SAFETY: mapped in `map`; no slice into it outlives `take`.
        let _unmapped = unsafe { munmap(base, self.block_bytes * self.block_count) };
    }
}
