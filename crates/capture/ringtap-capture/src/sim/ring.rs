// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receive ring of a simulated queue: packets wait in it; those that arrive when it is full are lost.
//!
//! Invariants
//! - Packets leave in the order in which they arrived; the newest are lost, never those that wait.

use std::collections::VecDeque;
use std::ops::Range;

/// Packets of one queue, by their numbers in it.
#[derive(Clone, Debug)]
pub(super) struct ReceiveRing {
    waiting: VecDeque<Range<u64>>,
    held: u64,
    capacity: u64,
    arrived: u64,
}

impl ReceiveRing {
    pub(super) fn new(capacity: u32) -> Self {
        ReceiveRing {
            waiting: VecDeque::new(),
            held: 0,
            capacity: capacity.into(),
            arrived: 0,
        }
    }

    /// Lets all packets below `until` arrive; returns the number that found no place.
    pub(super) fn arrive(&mut self, until: u64) -> u64 {
        let new = until.saturating_sub(self.arrived);
        let fit = new.min(self.room());
        if fit > 0 {
            let range = self.arrived..self.arrived + fit;
            match self.waiting.back_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => self.waiting.push_back(range),
            }
        }
        self.held += fit;
        self.arrived += new;
        new - fit
    }

    /// Free places.
    pub(super) fn room(&self) -> u64 {
        self.capacity - self.held
    }

    /// Packets that have arrived, including lost ones.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Packets that wait.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// The longest waiting packets, as far as their numbers follow each other.
    pub(super) fn first(&self) -> Option<Range<u64>> {
        self.waiting.front().cloned()
    }

    /// Removes that many of the packets that `first` returns.
    pub(super) fn pop(&mut self, packets: u64) {
        let Some(front) = self.waiting.front_mut() else {
            return;
        };
        front.start += packets;
        self.held -= packets;
        if front.is_empty() {
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_lost_and_order_is_kept() {
        let mut ring = ReceiveRing::new(4);
        assert_eq!(ring.arrive(3), 0);
        assert_eq!(ring.arrive(6), 2);
        ring.pop(1);
        assert_eq!(ring.arrive(9), 2);
        assert_eq!(ring.first(), Some(1..4));
        ring.pop(3);
        assert_eq!(ring.first(), Some(6..7));
        ring.pop(1);
        assert_eq!(ring.first(), None);
        assert_eq!((ring.held(), ring.room(), ring.arrived()), (0, 4, 9));
    }
}
