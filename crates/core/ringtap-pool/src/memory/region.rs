// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mapping that contains a pool, and checked access to pieces of it.
//!
//! Invariants
//! - Every access is checked to lie within its piece, and every piece within its region.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::{Owner, Words, prefetch};
use crate::format::SLOT_SIZE;
use crate::sync::{AtomicU32, AtomicU64};

/// A mapping that contains a pool.
#[derive(Clone)]
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
    owner: Owner,
}

// SAFETY: a region only returns addresses; the modules `view` and `writer` synchronize accesses
// by publish and acquire.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed memory on the heap, aligned to a page.
    pub fn on_heap(bytes: usize) -> Self {
        let heap = Arc::new(Heap::new(bytes));
        Region {
            base: heap.base,
            bytes,
            owner: heap,
        }
    }

    /// A mapping that `owner` keeps alive.
    ///
    /// # Safety
    ///
    /// `bytes` bytes from `base` on must stay mapped and readable until `owner` is dropped, and
    /// writable if a [`LaneWriter`](crate::writer::LaneWriter) uses this region. `base` must be
    /// aligned to 8 bytes. No code in this process may hold a reference into it.
    pub unsafe fn from_raw(base: NonNull<u8>, bytes: usize, owner: Owner) -> Self {
        Region { base, bytes, owner }
    }

    /// Bytes mapped.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address in this process, for system calls.
    pub fn address(&self) -> NonNull<u8> {
        self.base
    }

    /// `count` values of `T`, a word or struct of atomics, at byte `at`, if they are mapped and aligned.
    /// Only code that knows the region to be writable may store there.
    pub(crate) fn words<T: Sync>(&self, at: usize, count: usize) -> Option<Words<T>> {
        let bytes = count.checked_mul(size_of::<T>())?;
        if at.checked_add(bytes)? > self.bytes {
            return None;
        }
        // SAFETY: just checked to lie within the mapping.
        let first = unsafe { self.base.add(at) }.cast::<T>();
        if !first.is_aligned() {
            return None;
        }
        // SAFETY: mapped, readable and aligned until the owner is dropped; `from_raw`'s contract
        // excludes references into the region, so all code accesses them as atomics.
        Some(unsafe { Words::from_raw(first, count, self.owner.clone()) })
    }

    /// `bytes` bytes at `offset`, if they are mapped and `offset` is a multiple of 8.
    #[inline]
    pub(crate) fn piece(&self, offset: u64, bytes: usize) -> Option<Piece<'_>> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(bytes)?;
        if end > self.bytes || !offset.is_multiple_of(8) {
            return None;
        }
        // SAFETY: just checked to lie within the mapping.
        let base = unsafe { self.base.add(offset) };
        Some(Piece {
            base,
            bytes,
            _region: PhantomData,
        })
    }
}

/// Part of a region, mapped for `'a` and aligned to 8 bytes. Every access is checked.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    base: NonNull<u8>,
    bytes: usize,
    _region: PhantomData<&'a Region>,
}

// SAFETY: as for `Region`.
unsafe impl Send for Piece<'_> {}

impl<'a> Piece<'a> {
    /// Bytes in this piece.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    /// The same piece with a lifetime that the caller guarantees.
    ///
    /// # Safety
    ///
    /// The region must outlive every use of the result.
    pub(crate) unsafe fn outlive(self) -> Piece<'static> {
        Piece {
            base: self.base,
            bytes: self.bytes,
            _region: PhantomData,
        }
    }

    /// Address of `bytes` bytes at `at`, if they lie in the piece and are aligned to `align`.
    #[inline]
    fn place(self, at: usize, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let end = at.checked_add(bytes)?;
        if end > self.bytes || at & (align - 1) != 0 {
            return None;
        }
        // SAFETY: just checked to lie within the piece.
        Some(unsafe { self.base.add(at) })
    }

    /// The 32-bit word at `at`.
    ///
    /// # Panics
    ///
    /// If the word lies outside this piece: `at` is always a constant of the format.
    #[inline]
    pub(crate) fn word32(self, at: usize) -> &'a AtomicU32 {
        let place = self
            .place(at, 4, 4)
            .expect("a header word lies in its chunk");
        // SAFETY: mapped for 'a and aligned (`place`); shared words are reached as atomics only.
        unsafe { place.cast().as_ref() }
    }

    /// The 64-bit word at `at`.
    ///
    /// # Panics
    ///
    /// As for [`Piece::word32`].
    #[inline]
    pub(crate) fn word64(self, at: usize) -> &'a AtomicU64 {
        let place = self
            .place(at, 8, 8)
            .expect("a header word lies in its chunk");
        // SAFETY: as for `word32`.
        unsafe { place.cast().as_ref() }
    }

    /// The four words at `at`.
    #[inline]
    pub(crate) fn words(self, at: usize) -> Option<&'a [AtomicU64; 4]> {
        let place = self.place(at, 32, 8)?;
        // SAFETY: as for `word32`.
        Some(unsafe { place.cast().as_ref() })
    }

    /// Borrows `bytes` bytes at `at`.
    ///
    /// # Safety
    ///
    /// No code may write there during `'a`.
    #[inline]
    pub(crate) unsafe fn slice(self, at: usize, bytes: usize) -> Option<&'a [u8]> {
        let place = self.place(at, bytes, 1)?;
        // SAFETY: mapped for 'a (`place`); the caller keeps writers away.
        Some(unsafe { std::slice::from_raw_parts(place.as_ptr(), bytes) })
    }

    /// Borrows `bytes` bytes at `at` mutably.
    ///
    /// # Safety
    ///
    /// The region must be writable, and no other code may read or write there during `'b`.
    #[inline]
    pub(crate) unsafe fn slice_mut<'b>(self, at: usize, bytes: usize) -> Option<&'b mut [u8]>
    where
        'a: 'b,
    {
        let place = self.place(at, bytes, 1)?;
        // SAFETY: mapped for 'a and so for 'b (`place`), writable and the caller's alone.
        Some(unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), bytes) })
    }

    /// Copies `source` to `at`; returns `false` if it does not fit.
    ///
    /// # Safety
    ///
    /// The region must be writable, and no other code may read or write there during the call.
    #[inline]
    pub(crate) unsafe fn write(self, at: usize, source: &[u8]) -> bool {
        let Some(place) = self.place(at, source.len(), 1) else {
            return false;
        };
        // SAFETY: mapped (`place`) and ours alone (the caller), so `source` cannot overlap.
        unsafe { copy(source, place.as_ptr()) };
        true
    }

    /// Prefetches the line at `at` for reading; it may lie outside this piece.
    #[inline]
    pub(crate) fn will_read(self, at: usize) {
        prefetch::for_reading(self.base.as_ptr().wrapping_add(at));
    }

    /// Prefetches the line at `at` for writing; it may lie outside this piece.
    #[inline]
    pub(crate) fn will_write(self, at: usize) {
        prefetch::for_writing(self.base.as_ptr().wrapping_add(at));
    }
}

/// Size of a cache line in bytes.
pub(crate) const LINE: usize = 64;

/// Prefetch distance below a payload, in bytes: sixteen lines are in transfer while a packet is
/// copied.
pub(crate) const AHEAD: usize = 1024;

/// Prefetch distance for slots, in bytes.
pub(crate) const SLOTS_AHEAD: usize = 16 * SLOT_SIZE;

/// Copies `source` to `to` and prefetches the lines [`AHEAD`] below for the next packets.
///
/// Most packets are short: inlined block moves are cheaper than a call.
///
/// # Safety
///
/// `source.len()` bytes must be writable at `to`, and not overlap `source`.
#[inline]
unsafe fn copy(source: &[u8], mut to: *mut u8) {
    let mut rest = source;
    while let Some((block, after)) = rest.split_first_chunk::<LINE>() {
        prefetch::for_writing(to.wrapping_sub(AHEAD));
        // SAFETY: the caller's promise, for the block's part of `source`.
        to = unsafe { put(block, to) };
        rest = after;
    }
    if rest.is_empty() {
        return;
    }
    prefetch::for_writing(to.wrapping_sub(AHEAD));
    if let Some((block, after)) = rest.split_first_chunk::<32>() {
        // SAFETY: as above.
        to = unsafe { put(block, to) };
        rest = after;
    }
    if let Some((block, after)) = rest.split_first_chunk::<16>() {
        // SAFETY: as above.
        to = unsafe { put(block, to) };
        rest = after;
    }
    match source.last_chunk::<16>() {
        // SAFETY: the last sixteen bytes of `source`; the first of them are written once more.
        Some(last) => drop(unsafe { put(last, to.wrapping_add(rest.len()).wrapping_sub(16)) }),
        // SAFETY: as above.
        None => unsafe { ptr::copy_nonoverlapping(rest.as_ptr(), to, rest.len()) },
    }
}

/// Stores a block at `to`; returns the address behind it.
///
/// # Safety
///
/// The block must be writable at `to`.
#[inline]
unsafe fn put<const N: usize>(block: &[u8; N], to: *mut u8) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { to.cast::<[u8; N]>().write_unaligned(*block) };
    // SAFETY: at most one past the end.
    unsafe { to.add(N) }
}

struct Heap {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a plain allocation; the modules `view` and `writer` synchronize accesses.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Heap {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(1), 4096)
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<u8>()));
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        match NonNull::new(base) {
            Some(base) => Heap { base, layout },
            None => handle_alloc_error(layout),
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed only here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_lies_within_the_region_and_is_aligned() {
        let region = Region::on_heap(64);
        assert!(region.piece(0, 64).is_some() && region.piece(56, 8).is_some());
        for (offset, bytes) in [(0, 65), (64, 8), (4, 8), (u64::MAX - 7, 8)] {
            assert!(region.piece(offset, bytes).is_none(), "{offset} {bytes}");
        }
    }
}
