// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory shared with other threads, processes or the kernel.
//!
//! Invariants
//! - Each value holds the owner of its mapping, which therefore stays mapped.
//! - Shared words are accessed as atomics only.

#[cfg(not(loom))]
mod prefetch;
#[cfg(not(loom))]
mod region;

use std::any::Any;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(not(loom))]
pub use region::Region;
#[cfg(not(loom))]
pub(crate) use region::{AHEAD, LINE, Piece, SLOTS_AHEAD};

/// Prefetches the cache line at `place` for reading. Any address is allowed: nothing is accessed.
#[cfg(not(loom))]
#[inline]
pub fn prefetch<T>(place: *const T) {
    prefetch::for_reading(place.cast());
}

/// Keeps a mapping alive; dropped with its last user.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// Atomics in shared memory.
pub struct Words<T> {
    first: NonNull<T>,
    count: usize,
    _owner: Owner,
}

// SAFETY: the pointer leads to atomics (`T: Sync`) that the owner, itself Send and Sync, keeps.
unsafe impl<T: Sync> Send for Words<T> {}
// SAFETY: as above; callers get only `&T`.
unsafe impl<T: Sync> Sync for Words<T> {}

impl<T: Send + Sync + 'static> Words<T> {
    /// Words on the heap of this process.
    pub fn on_heap(words: Vec<T>) -> Self {
        let words: Arc<Vec<T>> = Arc::new(words);
        let first = NonNull::from(words.as_slice()).cast();
        Words {
            first,
            count: words.len(),
            _owner: words,
        }
    }
}

impl<T> Words<T> {
    /// Words in a mapping that `owner` keeps alive.
    ///
    /// # Safety
    ///
    /// From `first` on, `count` values of `T` (an atomic) must be mapped, aligned and readable until
    /// `owner` is dropped, and writable if the result is used to store. All code in this process must
    /// access them as atomics.
    pub unsafe fn from_raw(first: NonNull<T>, count: usize, owner: Owner) -> Self {
        Words {
            first,
            count,
            _owner: owner,
        }
    }
}

impl<T> Clone for Words<T> {
    fn clone(&self) -> Self {
        Words {
            first: self.first,
            count: self.count,
            _owner: Arc::clone(&self._owner),
        }
    }
}

impl<T> Deref for Words<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `from_raw`'s caller promised `count` mapped, aligned values while the owner lives,
        // and `self` holds the owner.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}
