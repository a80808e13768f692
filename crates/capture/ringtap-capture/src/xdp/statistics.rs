// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of one lane, from the counters of program, socket and capturing thread.
//!
//! Invariants
//! - `offered` is the program's count: that in the stamp of the last captured packet, or the current
//!   one when every counted packet is accounted for.
//! - The socket's losses are `pool_full` when no chunk was free at that time, else `kernel`.

use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard};

use ringtap_ipc::event::Event;
use ringtap_ipc::mutex::lock;
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::memory::Words;

use super::layout::QueueWords;
use super::socket::XskSocket;

/// Counters of the capturing thread after a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// The program's count of packets at the last packet.
    pub(crate) offered: u64,
    /// The program's count of filtered packets at the last packet.
    pub(crate) filtered: u64,
    /// Unwanted packets by the thread's own classification.
    pub(crate) filtered_here: u64,
    /// Packets withheld by flow rules from all members that wanted them.
    pub(crate) shunted: u64,
    pub(crate) captured: u64,
    /// Bytes on the wire of the captured packets.
    pub(crate) bytes: u64,
    /// Packets lost because no chunk was free, or the chunk was full.
    pub(crate) pool_full: u64,
}

/// Packets that the socket lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lost {
    /// The socket's total at the last reading.
    told: u64,
    pool_full: u64,
    kernel: u64,
}

#[derive(Debug, Default)]
struct LaneState {
    settled: Settled,
    lost: Lost,
    /// Whether no chunk is free; the socket's losses then count as `pool_full`.
    is_starved: bool,
    /// The counters returned last.
    told: Counters,
    is_closed: bool,
}

/// State shared by a lane's thread and the source.
pub(crate) struct LaneStatistics {
    pub(crate) socket: Arc<XskSocket>,
    pub(crate) stop: Event,
    stopping: AtomicBool,
    state: Mutex<LaneState>,
    /// Counters of all queues; `queue` selects this lane's.
    words: Words<QueueWords>,
    queue: usize,
}

impl LaneStatistics {
    pub(crate) fn new(
        socket: Arc<XskSocket>,
        stop: Event,
        words: Words<QueueWords>,
        queue: u16,
    ) -> Arc<Self> {
        Arc::new(LaneStatistics {
            socket,
            stop,
            stopping: AtomicBool::new(false),
            state: Mutex::default(),
            words,
            queue: usize::from(queue),
        })
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Acquire)
    }

    /// Makes the thread capture the remaining packets and end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Release);
        ringtap_pool::wake::Signal::signal(&self.stop);
    }

    fn state(&self) -> MutexGuard<'_, LaneState> {
        lock(&self.state)
    }

    /// Stores the thread's counters.
    pub(crate) fn settle(&self, settled: Settled) {
        self.state().settled = settled;
    }

    /// Stores whether no chunk is free; earlier losses keep their earlier reason.
    pub(crate) fn set_starved(&self, is_starved: bool) {
        let mut state = self.state();
        state.account(&self.socket);
        state.is_starved = is_starved;
    }

    /// Makes the counters final: the thread has ended and the program is detached.
    pub(crate) fn close(&self) {
        self.counts();
        self.state().is_closed = true;
    }

    /// A consistent snapshot of the lane's counters.
    pub(crate) fn counts(&self) -> Counters {
        let mut state = self.state();
        if state.is_closed {
            return state.told;
        }
        state.account(&self.socket);
        let mut program = counters_of(&self.words[self.queue]);
        for _ in 0..MAX_LOOKS {
            if state.settles(&program) {
                break;
            }
            program = counters_of(&self.words[self.queue]);
        }
        state.balance(&program)
    }
}

/// Maximum number of attempts to read a consistent set of the program's counters.
const MAX_LOOKS: u32 = 100;

/// The program's counters; what it did not pass while capture was paused is `pool_full`.
fn counters_of(words: &QueueWords) -> Counters {
    // Later counters first, so that `offered` is never behind what became of the packets.
    let dropped = Dropped {
        pool_full: words.paused.load(Acquire),
        kernel: words.failed.load(Acquire),
        ..Dropped::default()
    };
    let filtered = words.filtered.load(Acquire);
    Counters {
        offered: words.offered.load(Acquire),
        filtered,
        dropped,
        ..Counters::default()
    }
}

impl LaneState {
    fn account(&mut self, socket: &XskSocket) {
        // A socket whose statistics cannot be read adds nothing.
        let Ok(told) = socket.lost() else { return };
        let new = told.saturating_sub(self.lost.told);
        self.lost.told = told;
        if self.is_starved {
            self.lost.pool_full += new
        } else {
            self.lost.kernel += new
        }
    }

    /// Number of packets that the thread has accounted for.
    fn settled(&self) -> u64 {
        let settled = &self.settled;
        settled.captured + settled.filtered_here + settled.shunted + settled.pool_full
    }

    /// Whether every packet that the program counted is accounted for.
    fn settles(&self, program: &Counters) -> bool {
        let gone = program.filtered + program.dropped.total();
        let lost = self.lost.pool_full + self.lost.kernel;
        program.offered == self.settled() + gone + lost
    }

    /// The program's current counters if every counted packet is accounted for, else those of the last
    /// packet. No counter ever decreases.
    fn balance(&mut self, program: &Counters) -> Counters {
        let Settled {
            filtered_here,
            shunted,
            captured,
            bytes,
            pool_full,
            ..
        } = self.settled;
        let kernel = program.dropped.kernel + self.lost.kernel;
        let missed = program.dropped.pool_full + self.lost.pool_full;
        if self.settles(program) {
            self.told = Counters {
                offered: program.offered,
                delivered: captured,
                bytes,
                filtered: program.filtered + filtered_here,
                shunted,
                dropped: Dropped {
                    pool_full: pool_full + missed,
                    kernel,
                    ..Dropped::default()
                },
                ..Counters::default()
            };
            return self.told;
        }
        // Some packets are in transit: leave out those after the last packet. Packets before it that
        // the program saw and the thread does not have are lost.
        let before = self.told;
        let filtered = self.settled.filtered + filtered_here;
        let least = captured
            + filtered
            + shunted
            + before.dropped.kernel
            + before.dropped.pool_full.max(pool_full);
        let Some(mut rest) = self.settled.offered.checked_sub(least) else {
            return before;
        };
        let mut more = |told: u64, now: u64| {
            let part = now.saturating_sub(told).min(rest);
            rest -= part;
            told + part
        };
        let now = Counters {
            offered: self.settled.offered,
            delivered: captured,
            bytes,
            filtered,
            shunted,
            dropped: Dropped {
                pool_full: more(before.dropped.pool_full.max(pool_full), pool_full + missed),
                kernel: more(before.dropped.kernel, kernel),
                ..Dropped::default()
            },
            ..Counters::default()
        };
        if now.offered >= before.offered && now.filtered >= before.filtered {
            self.told = now;
        }
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> LaneState {
        LaneState {
            settled: Settled {
                offered: 100,
                filtered: 10,
                filtered_here: 3,
                shunted: 2,
                captured: 70,
                bytes: 7000,
                pool_full: 1,
            },
            lost: Lost {
                told: 14,
                pool_full: 8,
                kernel: 6,
            },
            ..LaneState::default()
        }
    }

    fn program(offered: u64, filtered: u64, pool_full: u64, kernel: u64) -> Counters {
        Counters {
            offered,
            filtered,
            dropped: Dropped {
                pool_full,
                kernel,
                ..Dropped::default()
            },
            ..Counters::default()
        }
    }

    #[test]
    fn what_the_program_counted_is_told_when_all_of_it_is_settled() {
        let counts = state().balance(&program(130, 20, 15, 5));
        assert_eq!((counts.offered, counts.accounted()), (130, 130));
        assert_eq!(
            (counts.dropped.pool_full, counts.dropped.kernel),
            (1 + 8 + 15, 6 + 5)
        );
    }

    #[test]
    fn no_packet_is_settled_before_it_is_offered() {
        /// Reads during which packets are counted.
        const LOOKS: u32 = 1000;
        let words = QueueWords::default();
        let settles = [&words.filtered, &words.paused, &words.failed];
        let settled = |counts: &Counters| counts.filtered + counts.dropped.total();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let unsettled = scope.spawn(|| {
                let (mut looks, mut last, mut found) = (0, 0, 0);
                while looks < LOOKS {
                    let counts = counters_of(&words);
                    looks += u32::from(counts.offered != last);
                    last = counts.offered;
                    found += u32::from(counts.offered < settled(&counts));
                }
                is_over.store(true, Release);
                found
            });
            // In the program's order.
            for word in settles.iter().cycle() {
                words.offered.fetch_add(1, Release);
                word.fetch_add(1, Release);
                if is_over.load(Acquire) {
                    break;
                }
            }
            assert_eq!(unsettled.join().unwrap(), 0);
        });
    }

    #[test]
    fn packets_on_their_way_are_left_out() {
        let counts = state().balance(&program(1000, 30, 0, 0));
        assert_eq!((counts.offered, counts.accounted()), (100, 100));
        assert_eq!((counts.filtered, counts.shunted), (13, 2));
    }

    #[test]
    fn no_counter_goes_back() {
        let mut state = state();
        let first = state.balance(&program(130, 20, 15, 5));
        // Only filtered packets and one in transit were added.
        assert_eq!(state.balance(&program(151, 40, 15, 5)), first);
        state.settled.offered = 151;
        state.settled.filtered = 40;
        state.settled.captured += 1;
        let counts = state.balance(&program(160, 45, 15, 5));
        assert_eq!((counts.offered, counts.accounted()), (151, 151));
        assert!(
            counts.dropped.pool_full >= first.dropped.pool_full
                && counts.dropped.kernel >= first.dropped.kernel
        );
    }

    #[test]
    fn a_packet_that_nobody_accounts_for_unbalances_the_counters() {
        let mut state = state();
        state.lost = Lost::default();
        let counts = state.balance(&program(1000, 10, 0, 0));
        assert_ne!(counts.offered, counts.accounted());
    }
}
