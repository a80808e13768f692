// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that wait for verdicts: receives verdicts and resolves packets that waited too long.
//!
//! Invariants
//! - The number of waiting cells is limited, so that the port can go on receiving into its own cells.

use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

use ringtap_ipc::verdict::Verdict;
use ringtap_pool::number::to_usize;

use super::inline::InlineReader;
use super::memory::CELLS;
use super::waiting::Fate;
use super::worker::BridgeWorker;
use ringtap_capture::xdp::ring::RingPiece;

/// Maximum number of a port's cells with waiting packets: at worst half of its own cells.
const MAX_WAITING: u32 = CELLS / 2;
/// Maximum number of verdicts between two rounds over the ports.
const MAX_VERDICTS: u32 = 4096;

impl BridgeWorker {
    /// Sends a packet that passed the filter, or queues it for its verdict. `noted` is its sequence
    /// number in the mirror, if the inline reader can see it.
    pub(super) fn submit(&mut self, at: usize, pieces: &[RingPiece], noted: Option<u64>) {
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
        let most = to_usize(MAX_WAITING);
        while self.ports[at].waiting.cells() > most {
            self.ports[at].waiting.give_up_first(no_verdict);
            self.release(at);
        }
    }

    fn meet(&mut self, at: usize, pieces: &[RingPiece], fate: Fate) {
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

    /// Sends or drops packets, in order, until one has no verdict yet.
    fn release(&mut self, at: usize) {
        let mut pieces = std::mem::take(&mut self.released);
        while let Some(fate) = self.ports[at].waiting.pop(&mut pieces) {
            self.meet(at, &pieces, fate);
        }
        self.released = pieces;
        let out = self.ports[at].way_out;
        self.ports[out].transmit.publish();
    }

    /// Receives verdicts and resolves packets that waited longer than the timeout. Returns whether a
    /// verdict arrived.
    pub(super) fn receive_verdicts(&mut self) -> bool {
        let Some(mut inline) = self.inline.take() else {
            return false;
        };
        self.now = Instant::now();
        inline.look(self.now);
        let mut heard = 0;
        while heard < MAX_VERDICTS
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

    /// Resolves all packets if the inline reader has left or is late.
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

    /// Resolves all packets, at the end of the bridge.
    pub(super) fn give_up(&mut self) {
        let Some(inline) = &self.inline else { return };
        let no_verdict = inline.no_verdict();
        for at in 0..self.ports.len() {
            self.ports[at].waiting.give_up(no_verdict);
            self.release(at);
        }
    }

    /// Time until the next packet reaches the timeout.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let inline = self.inline.as_ref()?;
        let since = self.ports.iter().filter_map(|port| port.waiting.since());
        Some(inline.left(since.min()?, Instant::now()))
    }
}
