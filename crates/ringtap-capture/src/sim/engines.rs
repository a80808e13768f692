// SPDX-License-Identifier: MIT OR Apache-2.0
//! Engines without a pool of chunks, to compare with: a ring alone, and a ring that is copied into
//! a second buffer. Plain counting in virtual time; they are models, and share no code with ours.
#![forbid(unsafe_code)]

use ringtap_pool::ledger::{Dropped, Ledger};

use super::{Link, SimError, SimOptions};

/// An engine that is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The reader works in the receive ring: a packet keeps its place until it is done with
    /// (PF_RING DNA, netmap).
    Ring,
    /// The kernel copies from the receive ring into a buffer from which the reader reads; what
    /// finds that full was copied for nothing (PF_RING).
    Copy {
        /// Packets that the buffer holds.
        slots: u64,
    },
}

/// Such an engine on a simulated NIC.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The NIC; its pool and clock are not asked.
    pub nic: SimOptions,
    /// What kind of engine.
    pub engine: Engine,
    /// What copying costs a packet, in picoseconds; nothing without a second buffer.
    pub capture_ps: u64,
    /// How long the reader of each queue takes for a packet, in picoseconds.
    pub service_ps: u64,
}

impl Comparison {
    /// Runs it until every packet is read or lost.
    ///
    /// # Errors
    ///
    /// As for [`Experiment::run`](super::run::Experiment::run).
    pub fn run(&self) -> Result<Ledger, SimError> {
        let link = Link::new(&self.nic)?;
        if link.packets == u64::MAX {
            return Err(SimError::Endless);
        }
        let mut ledger = Ledger::default();
        for queue in 0..self.nic.queues {
            ledger += self.queue(&link, queue);
        }
        Ok(ledger)
    }

    fn queue(&self, link: &Link, queue: u32) -> Ledger {
        let all = link.packets_of(queue);
        let mut state = State::default();
        let arrival = |n: u64| (n < all).then(|| link.time_of(queue, n));
        let mut next = arrival(0);
        loop {
            let soonest = [state.read_ps, state.copied_ps, next];
            let Some(now) = soonest.into_iter().flatten().min() else {
                break;
            };
            if state.read_ps == Some(now) {
                state.read_ps = None;
                state.done += 1;
            } else if state.copied_ps == Some(now) {
                self.copied(&mut state);
            } else {
                state.arrive(link.ring);
                next = arrival(state.arrived);
            }
            self.begin(&mut state, now);
        }
        Ledger {
            offered: all,
            delivered: state.done,
            dropped: Dropped {
                nic: state.lost,
                kernel: state.lost_copies,
                ..Dropped::default()
            },
            ..Ledger::default()
        }
    }

    fn copied(&self, state: &mut State) {
        state.copied_ps = None;
        state.ring -= 1;
        match self.engine {
            Engine::Copy { slots } if state.buffer >= slots => state.lost_copies += 1,
            _ => state.buffer += 1,
        }
    }

    /// Whoever is idle begins with what waits for it.
    fn begin(&self, state: &mut State, now: u64) {
        let read = |state: &State| state.taken - state.done;
        if state.read_ps.is_none() && read(state) == 0 {
            // What was read gives its place back when it is done with.
            state.release(self.engine);
        }
        if state.copied_ps.is_none() && state.ring > 0 && self.engine != Engine::Ring {
            state.copied_ps = Some(now + self.capture_ps);
        }
        let waits = match self.engine {
            Engine::Ring => state.ring,
            Engine::Copy { .. } => state.buffer,
        };
        if state.read_ps.is_none() && waits > 0 {
            state.taken += 1;
            state.read_ps = Some(now + self.service_ps);
        }
    }
}

/// One queue: what waits where, and what became of the rest.
#[derive(Debug, Default)]
struct State {
    arrived: u64,
    /// Packets in the receive ring, and in the buffer; those that are being worked on, too.
    ring: u64,
    buffer: u64,
    copied_ps: Option<u64>,
    read_ps: Option<u64>,
    taken: u64,
    done: u64,
    released: u64,
    lost: u64,
    lost_copies: u64,
}

impl State {
    fn arrive(&mut self, ring: u64) {
        self.arrived += 1;
        if self.ring < ring {
            self.ring += 1;
        } else {
            self.lost += 1;
        }
    }

    fn release(&mut self, engine: Engine) {
        let done = self.done - self.released;
        self.released = self.done;
        match engine {
            Engine::Ring => self.ring -= done,
            Engine::Copy { .. } => self.buffer -= done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::PS_PER_SECOND;
    use crate::transmit::Rate;

    fn lost(engine: Engine, burst: u64, fifo: u32, service_ps: u64) -> u64 {
        let comparison = Comparison {
            nic: SimOptions {
                burst: Some(burst),
                fifo,
                ..SimOptions::new(Rate::BitsPerSecond(10_000_000_000))
            },
            engine,
            capture_ps: 500_000,
            service_ps,
        };
        let ledger = comparison.run().unwrap();
        assert!(ledger.balance().holds());
        ledger.dropped.total()
    }

    #[test]
    fn a_ring_holds_what_it_has_places_for_and_what_was_read_meanwhile() {
        let service_ps = PS_PER_SECOND / 38_844;
        for burst in [1000, 1024, 1025, 6000, 100_000] {
            let read = (burst - 1) * 67_200 / service_ps;
            let expected = burst.saturating_sub(1024 + read);
            let lost = lost(Engine::Ring, burst, 0, service_ps);
            assert!(
                lost.abs_diff(expected) <= 1,
                "{burst}: {lost}, not {expected}"
            );
        }
    }

    #[test]
    fn a_copy_is_the_bottleneck_of_a_fast_reader_and_a_buffer_of_a_slow_one() {
        let slots = 10_240;
        let fast = lost(Engine::Copy { slots }, 1_000_000, 0, 0);
        assert!(
            fast > 850_000,
            "2 of 14.88 million a second are copied: {fast}"
        );
        let slow = lost(Engine::Copy { slots }, 100_000, 0, PS_PER_SECOND / 38_844);
        assert!(slow > 100_000 - 10_240 - 1024 - 14_000, "{slow}");
    }
}
