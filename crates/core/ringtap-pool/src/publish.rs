// SPDX-License-Identifier: MIT OR Apache-2.0
//! Publishes slots for readers, and reads published slots.
//!
//! Invariants
//! - The count in a chunk's state only grows until the chunk is sealed, and never after.
//! - Slot and payload are complete before the count that covers them is stored.

use crate::format::{SEALED, Slot};
use crate::sync::{AtomicU32, AtomicU64, Ordering::*};

/// Decoded state word of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkState {
    /// Number of readable slots.
    pub published: u32,
    /// Whether no more slots will be published.
    pub sealed: bool,
}

/// Publishes the first `published` slots.
#[inline]
pub fn publish(state: &AtomicU32, published: u32) {
    // Pairs with the acquire load in `observe`: slots and payloads come first.
    state.store((published & !SEALED).to_le(), Release);
}

/// Publishes the first `published` slots and seals the chunk.
#[inline]
pub fn seal(state: &AtomicU32, published: u32) {
    // Pairs with the acquire load in `observe`: slots and payloads come first.
    state.store((published | SEALED).to_le(), Release);
}

/// Reads a chunk's state.
#[inline]
pub fn observe(state: &AtomicU32) -> ChunkState {
    // Pairs with the release stores in `publish` and `seal`, and with the eBPF program's store.
    let word = u32::from_le(state.load(Acquire));
    ChunkState {
        published: word & !SEALED,
        sealed: word & SEALED != 0,
    }
}

/// Writes a slot that is not yet published.
#[inline]
pub fn put_slot(words: &[AtomicU64; 4], slot: Slot) {
    for (word, value) in words.iter().zip(slot.to_words()) {
        word.store(value, Relaxed);
    }
}

/// Reads a published slot.
#[inline]
pub fn get_slot(words: &[AtomicU64; 4]) -> Slot {
    Slot::from_words(get_words(words))
}

/// Reads a published slot without decoding it.
#[inline]
pub fn get_words(words: &[AtomicU64; 4]) -> [u64; 4] {
    let [time, mask, lengths, places] = words;
    [
        time.load(Relaxed),
        mask.load(Relaxed),
        lengths.load(Relaxed),
        places.load(Relaxed),
    ]
}
