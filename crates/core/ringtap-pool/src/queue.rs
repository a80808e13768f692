// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ring of 64-bit entries (mostly chunk numbers) between one producer and one consumer.
//!
//! One side pushes, the other pops, in order, without locks.
//!
//! Invariants
//! - The capacity is a power of two and never changes.
//! - `tail - head` never exceeds the capacity, unless the peer misbehaves.
//! - Each side keeps a private index and publishes a copy, so the peer cannot change the index.
//! - The peer is not trusted: what it wrote is checked before it is used.

use crate::memory::Words;
use crate::number::to_usize;
use crate::sync::{AtomicU32, AtomicU64, Ordering::*};

/// Memory of a queue; head and tail may lie in different mappings.
#[derive(Clone)]
pub struct QueueMemory {
    head: Words<AtomicU32>,
    tail: Words<AtomicU32>,
    entries: Words<AtomicU64>,
}

/// Reason why memory cannot be a queue.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a queue of {entries} entries: expected a power of two up to 2^31, one head and one tail")]
pub struct QueueMemoryError {
    entries: usize,
}

/// The peer wrote an impossible index.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
#[error("the other side claims {claimed} entries in a queue of {capacity}")]
pub struct PeerCorrupt {
    /// Number of entries that the peer's index implies.
    pub claimed: u32,
    /// Capacity of the queue.
    pub capacity: u32,
}

/// Why an entry could not be pushed.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
#[non_exhaustive]
pub enum PushError {
    /// The queue is full.
    #[error("the queue is full")]
    Full,
    /// The consumer's index is impossible.
    #[error(transparent)]
    PeerCorrupt(#[from] PeerCorrupt),
}

impl QueueMemory {
    /// The memory of a queue.
    ///
    /// # Errors
    ///
    /// [`QueueMemoryError`] if the number of entries is not a power of two, or head or tail is missing.
    pub fn new(
        head: Words<AtomicU32>,
        tail: Words<AtomicU32>,
        entries: Words<AtomicU64>,
    ) -> Result<Self, QueueMemoryError> {
        let count = entries.len();
        if !count.is_power_of_two() || count > 1 << 31 || head.is_empty() || tail.is_empty() {
            return Err(QueueMemoryError { entries: count });
        }
        Ok(QueueMemory {
            head,
            tail,
            entries,
        })
    }

    /// A queue on the heap for at least `capacity` entries (at most 2^31).
    pub fn on_heap(capacity: u32) -> Self {
        let capacity = to_usize(capacity.clamp(1, 1 << 31).next_power_of_two());
        let word = || Words::on_heap(vec![AtomicU32::new(0)]);
        let entries = (0..capacity).map(|_| AtomicU64::new(0)).collect();
        QueueMemory {
            head: word(),
            tail: word(),
            entries: Words::on_heap(entries),
        }
    }

    fn capacity(&self) -> u32 {
        // `new` and `on_heap` keep it at or below 2^31.
        u32::try_from(self.entries.len()).unwrap_or(1 << 31)
    }

    fn entry(&self, index: u32) -> &AtomicU64 {
        &self.entries[to_usize(index & (self.capacity() - 1))]
    }
}

/// Creates both ends of a queue on the heap.
pub fn pair(capacity: u32) -> (Producer, Consumer) {
    let memory = QueueMemory::on_heap(capacity);
    (Producer::new(memory.clone()), Consumer::new(memory))
}

/// The end that pushes.
pub struct Producer {
    memory: QueueMemory,
    tail: u32,
}

impl Producer {
    /// The producing end; the caller creates only one.
    pub fn new(memory: QueueMemory) -> Self {
        let tail = memory.tail[0].load(Relaxed);
        Producer { memory, tail }
    }

    /// Appends an entry; the consumer sees it and all earlier writes at once.
    ///
    /// # Errors
    ///
    /// - [`PushError::Full`]: nothing was pushed.
    /// - [`PushError::PeerCorrupt`]: the consumer wrote an impossible index.
    pub fn push(&mut self, entry: u64) -> Result<(), PushError> {
        let capacity = self.memory.capacity();
        // Pairs with the release store in `Consumer::pop`: the entry was read before it is overwritten.
        let waiting = self.tail.wrapping_sub(self.memory.head[0].load(Acquire));
        if waiting > capacity {
            return Err(PeerCorrupt {
                claimed: waiting,
                capacity,
            }
            .into());
        }
        if waiting == capacity {
            return Err(PushError::Full);
        }
        self.memory.entry(self.tail).store(entry, Relaxed);
        self.tail = self.tail.wrapping_add(1);
        // Pairs with the acquire load in `Consumer::pop`: makes the entry visible.
        self.memory.tail[0].store(self.tail, Release);
        Ok(())
    }
}

/// The end that pops.
pub struct Consumer {
    memory: QueueMemory,
    head: u32,
}

impl Consumer {
    /// The consuming end; the caller creates only one.
    pub fn new(memory: QueueMemory) -> Self {
        let head = memory.head[0].load(Relaxed);
        Consumer { memory, head }
    }

    /// Takes the oldest entry; `None` when there is none.
    ///
    /// # Errors
    ///
    /// [`PeerCorrupt`]: the producer wrote an impossible index.
    pub fn pop(&mut self) -> Result<Option<u64>, PeerCorrupt> {
        let capacity = self.memory.capacity();
        // Pairs with the release store in `Producer::push`: makes the entry visible.
        let waiting = self.memory.tail[0].load(Acquire).wrapping_sub(self.head);
        if waiting > capacity {
            return Err(PeerCorrupt {
                claimed: waiting,
                capacity,
            });
        }
        if waiting == 0 {
            return Ok(None);
        }
        let entry = self.memory.entry(self.head).load(Relaxed);
        self.head = self.head.wrapping_add(1);
        // Pairs with the acquire load in `Producer::push`: the entry may be overwritten.
        self.memory.head[0].store(self.head, Release);
        Ok(Some(entry))
    }

    /// Number of entries; at most the capacity, whatever the producer's index is.
    pub(crate) fn len(&self) -> u32 {
        let waiting = self.memory.tail[0].load(Acquire).wrapping_sub(self.head);
        waiting.min(self.memory.capacity())
    }

    /// Index of the next entry.
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// The oldest entry, which stays in the queue.
    #[inline]
    pub fn peek(&self) -> Option<u64> {
        let entry = || self.memory.entry(self.head).load(Relaxed);
        (!self.is_empty()).then(entry)
    }

    /// Whether the queue is empty (or the producer's index is impossible, which `pop` reports).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.memory.tail[0].load(Acquire) == self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_index_of_the_other_side_is_refused() {
        let memory = QueueMemory::on_heap(4);
        let (mut producer, mut consumer) =
            (Producer::new(memory.clone()), Consumer::new(memory.clone()));
        assert!(consumer.is_empty());
        assert_eq!(producer.push(7), Ok(()));
        assert!(!consumer.is_empty());
        memory.head[0].store(2, Relaxed);
        let claimed = u32::MAX;
        let corrupt = PeerCorrupt {
            claimed,
            capacity: 4,
        };
        assert_eq!(producer.push(8), Err(corrupt.into()));
        memory.tail[0].store(claimed, Relaxed);
        assert_eq!(consumer.pop(), Err(corrupt));
    }
}
