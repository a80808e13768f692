// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-up signal for readers and the hub: a signal is sent only to a side that sleeps.
//!
//! The sleeper stores the level it waits for, checks again, then sleeps. The writer publishes, then
//! reads the stored level. A full fence on both sides ensures that one side sees the other's store.
//! The eBPF writer has no fence, which would cost time for every packet: for it, the sleeper's first
//! sleep is short, see [`FIRST_SLEEP`].

use std::time::Duration;

use crate::memory::Words;
use crate::sync::{AtomicU32, Ordering::*, fence};

/// Duration of the first sleep, after which a sleeper checks again and then sleeps without limit.
///
/// A store in transit at the sleeper's first check is visible long before.
pub const FIRST_SLEEP: Duration = Duration::from_millis(2);

/// Flag by which one side requests a signal from the other.
///
/// The sleeper raises the flag, checks for news, then sleeps. The other side publishes news, takes
/// the flag, and signals if it was raised.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct WakeFlag(AtomicU32);

impl WakeFlag {
    /// Requests a signal; the caller then runs a full fence, and checks for news again.
    pub(crate) fn request(&self) {
        self.0.store(1, Relaxed);
    }

    /// Requests a signal; the caller then checks for news again.
    pub fn raise(&self) {
        self.request();
        // Pairs with the fence in `take`: this side sees the news, or the other side sees the flag.
        fence(SeqCst);
    }

    /// Withdraws the request.
    #[inline]
    pub fn lower(&self) {
        self.0.store(0, Relaxed);
    }

    /// Whether a signal is requested.
    pub fn is_raised(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// Clears the request; returns whether there was one, which the caller then signals.
    pub fn take(&self) -> bool {
        // Pairs with the fence in `raise`.
        fence(SeqCst);
        self.is_raised() && self.0.swap(0, AcqRel) != 0
    }
}

/// Event that a sleeper waits for; the number is its representation in the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Nothing: no sleeper.
    Quiet = 0,
    /// A chunk is opened (or a lane ends).
    Chunk = 1,
    /// A packet is published.
    Packet = 2,
}

/// A signal that wakes a sleeper: an eventfd or a condition variable.
pub trait Signal: Send + Sync {
    /// Wakes the sleeper, now or at its next sleep.
    fn signal(&self);
}

/// A signal without effect.
pub struct NoSignal;

impl Signal for NoSignal {
    fn signal(&self) {}
}

/// Word in which a sleeper stores the event that it waits for.
#[derive(Clone)]
pub struct WakeWord(Words<AtomicU32>);

impl WakeWord {
    /// The first word of `words`.
    ///
    /// # Panics
    ///
    /// If `words` is empty.
    pub fn new(words: Words<AtomicU32>) -> Self {
        assert!(!words.is_empty(), "a wake word needs a word");
        WakeWord(words)
    }

    /// A word on the heap.
    pub fn on_heap() -> Self {
        WakeWord(Words::on_heap(vec![AtomicU32::new(Level::Quiet as u32)]))
    }

    /// Stores the event to wait for, unless a finer one is stored; the caller then checks again.
    pub fn arm(&self, level: Level) {
        self.0[0].fetch_max(level as u32, SeqCst);
        // Pairs with the fence in `take`: this side sees the writer's work, or the writer sees the level.
        fence(SeqCst);
    }

    /// Stores that no sleeper waits.
    pub fn disarm(&self) {
        self.0[0].store(Level::Quiet as u32, Relaxed);
    }

    /// Whether a sleeper waits for this event; the level is then reset.
    pub fn take(&self, happened: Level) -> bool {
        // Pairs with the fence in `arm`.
        fence(SeqCst);
        let armed = self.0[0].load(Relaxed);
        if armed < Level::Chunk as u32 || armed < Self::least(happened) {
            return false;
        }
        self.0[0].swap(Level::Quiet as u32, SeqCst) != Level::Quiet as u32
    }

    /// The lowest armed level that an event of this level wakes.
    fn least(happened: Level) -> u32 {
        match happened {
            // A new chunk also wakes sleepers that wait for packets.
            Level::Chunk => Level::Chunk as u32,
            Level::Packet | Level::Quiet => Level::Packet as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_wakes_once_for_what_it_waits_for() {
        let word = WakeWord::on_heap();
        for (waits_for, by_packet, by_chunk) in [
            (Level::Quiet, false, false),
            (Level::Chunk, false, true),
            (Level::Packet, true, true),
        ] {
            for (happened, wakes) in [(Level::Packet, by_packet), (Level::Chunk, by_chunk)] {
                word.disarm();
                word.arm(waits_for);
                assert_eq!(word.take(happened), wakes, "{waits_for:?} {happened:?}");
                assert!(!wakes || !word.take(happened), "only once");
            }
        }
    }
}
