// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-ups: who finds nothing says so in a word and sleeps; the other side signals only then.
//!
//! The sleeper stores the level it waits for, then looks once more, then sleeps. The writer
//! publishes, then looks at the word. A full fence on either side makes sure that one of them
//! sees the other. The eBPF writer has no such fence (it would cost every packet): for it the
//! sleeper's first sleep is short, see [`FIRST_SLEEP`].
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::memory::Words;
use crate::sync::{AtomicU32, Ordering::*, fence};

/// How long a sleeper sleeps at most before it looks once more and then sleeps for good.
///
/// A store that was in flight when the sleeper looked is visible long before this has passed.
pub const FIRST_SLEEP: Duration = Duration::from_millis(2);

/// A flag by which one side asks the other for a signal.
///
/// Who asks raises it, then looks once more, then sleeps. Who has news writes it down, then takes
/// the flag, and signals if it was raised.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct WakeFlag(AtomicU32);

impl WakeFlag {
    /// Asks for a signal; then look once more.
    pub fn raise(&self) {
        self.0.store(1, Relaxed);
        // Pairs with the fence in `take`: either they see the flag or we see their news.
        fence(SeqCst);
    }

    /// Asks for nothing any more.
    #[inline]
    pub fn lower(&self) {
        self.0.store(0, Relaxed);
    }

    /// Whether the other side asks.
    pub fn is_raised(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// Whether the other side asked, who is then taken to know: signal it.
    pub fn take(&self) -> bool {
        // Pairs with the fence in `raise`.
        fence(SeqCst);
        self.is_raised() && self.0.swap(0, AcqRel) != 0
    }
}

/// What a sleeper waits for; the number is what lies in the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Nothing: nobody sleeps.
    Quiet = 0,
    /// That a chunk is opened (or a lane ends).
    Chunk = 1,
    /// That anything is published.
    Packet = 2,
}

/// A signal that ends somebody's sleep: an eventfd, a condition variable.
pub trait Signal: Send + Sync {
    /// Wakes the sleeper, now or when it next wants to sleep.
    fn signal(&self);
}

/// A signal that nobody needs.
pub struct NoSignal;

impl Signal for NoSignal {
    fn signal(&self) {}
}

/// The word in which a sleeper says what it waits for.
#[derive(Clone)]
pub struct WakeWord(Words<AtomicU32>);

impl WakeWord {
    /// The first of these words.
    ///
    /// # Panics
    ///
    /// If there is no word at all.
    pub fn new(words: Words<AtomicU32>) -> Self {
        assert!(!words.is_empty(), "a wake word needs a word");
        WakeWord(words)
    }

    /// A word on the heap.
    pub fn on_heap() -> Self {
        WakeWord(Words::on_heap(vec![AtomicU32::new(Level::Quiet as u32)]))
    }

    /// Says what the sleeper waits for, never less than was said before; then look once more.
    pub fn arm(&self, level: Level) {
        self.0[0].fetch_max(level as u32, SeqCst);
        // Pairs with the fence in `take`: either they see the level or we see their work.
        fence(SeqCst);
    }

    /// Says that nobody sleeps any more.
    pub fn disarm(&self) {
        self.0[0].store(Level::Quiet as u32, Relaxed);
    }

    /// Whether a sleeper waits for what just happened; it is then taken to be awake.
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
            // A new chunk is news for those who wait for chunks and for packets.
            Level::Chunk => Level::Chunk as u32,
            Level::Packet | Level::Quiet => Level::Packet as u32,
        }
    }
}
