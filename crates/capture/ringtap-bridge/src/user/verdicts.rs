// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that wait for verdicts: the thread receives verdicts, and gives up late ones.
//!
//! Invariants
//! - So many cells wait at most that the port's own ones go on receiving.
#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

use ringtap_ipc::verdict::Verdict;
use ringtap_pool::number::to_usize;

use super::inline::InlineReader;
use super::memory::CELLS;
use super::waiting::Fate;
use super::worker::BridgeWorker;
use ringtap_capture::xdp::ring::Piece;

/// Most cells of a port whose packets wait: half of its own ones, if it comes to the worst.
const MOST_WAITING: u32 = CELLS / 2;
/// Most verdicts between two looks at the ports.
const MOST_VERDICTS: u32 = 4096;

impl BridgeWorker {
    /// Sends a packet on that passed the filter, or lets it wait for its verdict; `noted` is its
    /// sequence in the mirror, if the inline reader can see it.
    pub(super) fn submit(&mut self, at: usize, pieces: &[Piece], noted: Option<u64>) {
        let Some(inline) = &self.inline else {
            return self.push(at, pieces);
        };
        let no_verdict = inline.no_verdict();
        let fate = match noted {
            Some(_) if inline.answers() => None,
            _ => Some(no_verdict),
        };
        let port = &mut self.ports[at];
        match fate {
            Some(fate) if port.waiting.is_empty() => return self.meet(at, pieces, fate),
            _ => {}
        }
        let next = port
            .capture
            .as_ref()
            .map_or(0, |capture| capture.next_sequence());
        let sequence = noted.unwrap_or(next);
        port.waiting.push(pieces, sequence, fate, self.now);
        let most = to_usize(MOST_WAITING);
        while self.ports[at].waiting.cells() > most {
            self.ports[at].waiting.give_up_first(no_verdict);
            self.release(at);
        }
    }

    fn meet(&mut self, at: usize, pieces: &[Piece], fate: Fate) {
        let way = self.way(at);
        let counter = match fate {
            Fate::Decided(Verdict::Pass) => return self.push(at, pieces),
            Fate::Decided(Verdict::Drop) => &way.filtered,
            Fate::NoVerdict(Verdict::Drop) => &way.no_verdict_dropped,
            Fate::NoVerdict(Verdict::Pass) => {
                way.no_verdict_passed.fetch_add(1, Release);
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

    /// Receives the inline reader's verdicts, and gives up packets that waited past the timeout.
    /// Returns whether a verdict came.
    pub(super) fn receive_verdicts(&mut self) -> bool {
        let Some(mut inline) = self.inline.take() else {
            return false;
        };
        self.now = Instant::now();
        inline.look(self.now);
        let mut heard = 0;
        while heard < MOST_VERDICTS
            && let Some(verdict) = inline.next()
        {
            heard += 1;
            if let Some(port) = self.ports.get_mut(verdict.lane.index()) {
                port.waiting.decide(&verdict);
            }
            inline.received(&verdict, || self.next_sequences(), self.now);
        }
        self.give_up_late(&mut inline);
        self.inline = Some(inline);
        for at in 0..self.ports.len() {
            if !self.ports[at].waiting.is_empty() {
                self.release(at);
            }
        }
        heard > 0
    }

    fn next_sequences(&self) -> Vec<u64> {
        let capture = self.ports.iter().map(|port| port.capture.as_ref());
        capture
            .map(|capture| capture.map_or(0, |capture| capture.next_sequence()))
            .collect()
    }

    /// Gives up all packets when the inline reader has left, or is late.
    fn give_up_late(&mut self, inline: &mut InlineReader) {
        let since = self.ports.iter().filter_map(|port| port.waiting.since());
        let Some(since) = since.min() else { return };
        if inline.answers() && inline.left(since, self.now) > Duration::ZERO {
            return;
        }
        if inline.answers() {
            inline.is_late(self.next_sequences(), self.now);
        }
        for port in &mut self.ports {
            port.waiting.give_up(inline.no_verdict());
        }
    }

    /// Lets nothing wait any longer: the end has come.
    pub(super) fn give_up(&mut self) {
        let Some(inline) = &self.inline else { return };
        let no_verdict = inline.no_verdict();
        for at in 0..self.ports.len() {
            self.ports[at].waiting.give_up(no_verdict);
            self.release(at);
        }
    }

    /// How long the thread may sleep before it has to give something up.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let inline = self.inline.as_ref()?;
        let since = self.ports.iter().filter_map(|port| port.waiting.since());
        Some(inline.left(since.min()?, Instant::now()))
    }
}
