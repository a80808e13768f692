// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bridge's thread and its judge: lets packets wait, hears verdicts, gives up.
//!
//! Invariants
//! - So many cells wait at most that the port's own ones go on receiving.
#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

use ringtap_ipc::verdict::Verdict;
use ringtap_pool::number::to_usize;

use super::judging::Judging;
use super::memory::CELLS;
use super::waiting::Fate;
use super::worker::Worker;
use crate::xdp::ring::Piece;

/// Most cells of a port whose packets wait: half of its own ones, if it comes to the worst.
const MOST_WAITING: u32 = CELLS / 2;
/// Most verdicts between two looks at the ports.
const MOST_VERDICTS: u32 = 4096;

impl Worker {
    /// Sends a packet on that passed the filter, or lets it wait for its verdict; `noted` is its
    /// sequence in the mirror, if the judge can see it.
    pub(super) fn submit(&mut self, at: usize, pieces: &[Piece], noted: Option<u64>) {
        let Some(judging) = &self.judging else {
            return self.push(at, pieces);
        };
        let unjudged = judging.unjudged();
        let fate = match noted {
            Some(_) if judging.answers() => None,
            _ => Some(unjudged),
        };
        let port = &mut self.ports[at];
        match fate {
            Some(fate) if port.waiting.is_empty() => return self.meet(at, pieces, fate),
            _ => {}
        }
        let next = port.notes.as_ref().map_or(0, |notes| notes.next_sequence());
        let sequence = noted.unwrap_or(next);
        port.waiting.push(pieces, sequence, fate, self.now);
        let most = to_usize(MOST_WAITING);
        while self.ports[at].waiting.cells() > most {
            self.ports[at].waiting.give_up_first(unjudged);
            self.release(at);
        }
    }

    fn meet(&mut self, at: usize, pieces: &[Piece], fate: Fate) {
        let way = self.way(at);
        let counter = match fate {
            Fate::Judged(Verdict::Pass) => return self.push(at, pieces),
            Fate::Judged(Verdict::Drop) => &way.filtered,
            Fate::Unjudged(Verdict::Drop) => &way.unjudged_dropped,
            Fate::Unjudged(Verdict::Pass) => {
                way.unjudged_passed.fetch_add(1, Release);
                return self.push(at, pieces);
            }
        };
        counter.fetch_add(1, Release);
        self.drop_cells(pieces);
    }

    /// Sends, or drops, the packets whose turn it is and whose fate is known.
    fn release(&mut self, at: usize) {
        let mut pieces = std::mem::take(&mut self.released);
        while let Some(fate) = self.ports[at].waiting.pop(&mut pieces) {
            self.meet(at, &pieces, fate);
        }
        self.released = pieces;
        let out = self.ports[at].way_out;
        self.ports[out].transmit.publish();
    }

    /// Hears the judge, if there is one, and gives up what waited for too long; tells whether
    /// anything came.
    pub(super) fn hear(&mut self) -> bool {
        let Some(mut judging) = self.judging.take() else {
            return false;
        };
        self.now = Instant::now();
        judging.look(self.now);
        let mut heard = 0;
        while heard < MOST_VERDICTS
            && let Some(judgement) = judging.next()
        {
            heard += 1;
            if let Some(port) = self.ports.get_mut(judgement.lane.index()) {
                port.waiting.decide(&judgement);
            }
            judging.heard(&judgement, || self.next_sequences(), self.now);
        }
        self.give_up_late(&mut judging);
        self.judging = Some(judging);
        for at in 0..self.ports.len() {
            if !self.ports[at].waiting.is_empty() {
                self.release(at);
            }
        }
        heard > 0
    }

    fn next_sequences(&self) -> Vec<u64> {
        let notes = self.ports.iter().map(|port| port.notes.as_ref());
        notes
            .map(|notes| notes.map_or(0, |notes| notes.next_sequence()))
            .collect()
    }

    /// Lets nothing wait for a judge that is not there, or that let a packet wait for too long.
    fn give_up_late(&mut self, judging: &mut Judging) {
        let since = self.ports.iter().filter_map(|port| port.waiting.since());
        let Some(since) = since.min() else { return };
        if judging.answers() && judging.left(since, self.now) > Duration::ZERO {
            return;
        }
        if judging.answers() {
            judging.is_late(self.next_sequences(), self.now);
        }
        for port in &mut self.ports {
            port.waiting.give_up(judging.unjudged());
        }
    }

    /// Lets nothing wait any longer: the end has come.
    pub(super) fn give_up(&mut self) {
        let Some(judging) = &self.judging else { return };
        let unjudged = judging.unjudged();
        for at in 0..self.ports.len() {
            self.ports[at].waiting.give_up(unjudged);
            self.release(at);
        }
    }

    /// How long the thread may sleep before it has to give something up.
    pub(super) fn patience(&self) -> Option<Duration> {
        let judging = self.judging.as_ref()?;
        let since = self.ports.iter().filter_map(|port| port.waiting.since());
        Some(judging.left(since.min()?, Instant::now()))
    }
}
