// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread of a user-space bridge: serves the ports in turn, sends packets, and sleeps.
//!
//! Invariants
//! - A packet is sent, filtered or counted as lost; its cells return to their port exactly once.
//! - A full transmit ring is counted and delays nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use ringtap_capture::tap::Passing;
use ringtap_pool::number::{to_u32, to_u64};
use ringtap_pool::wake::Signal as _;
use rustix::event::{PollFd, PollFlags, poll};

use super::inline::InlineReader;
use super::memory::{BridgeMemory, CellOwner};
use super::port::BridgePort;
use super::setup::MirrorWriter;
use super::shared::{BridgeState, Way};
use ringtap_capture::xdp::ring::RingPiece;
use ringtap_capture::xdp::socket::Sent;

/// Maximum number of consecutive send calls.
const MAX_SENDS: u32 = 8;
const MAX_DRAINS: u32 = 1000;
const RETRY: Duration = Duration::from_millis(1);

/// All ports, and the filter and inline reader that decide about their packets.
pub(super) struct BridgeWorker {
    pub(super) ports: Vec<BridgePort>,
    pub(super) memory: BridgeMemory,
    pub(super) passing: Passing,
    pub(super) shared: Arc<BridgeState>,
    /// Present until the mirrors are closed.
    pub(super) mirrors: [Option<MirrorWriter>; 2],
    pub(super) completes_checksums: [bool; 2],
    pub(super) gathered: Vec<u8>,
    pub(super) pieces: Vec<RingPiece>,
    /// The inline reader, if the bridge has one.
    pub(super) inline: Option<InlineReader>,
    /// Pieces of a packet that has waited.
    pub(super) released: Vec<RingPiece>,
    /// Start time of this round.
    pub(super) now: Instant,
}

impl BridgeWorker {
    /// Forwards until stopped, then sends the packets already received.
    pub(super) fn work(&mut self) {
        while !self.shared.is_stopping() {
            if !self.round() {
                self.sleep();
            }
        }
        // All packets that the programs redirected are in the rings now.
        self.drain();
        self.give_up();
        self.drain();
        let stuck = |side: usize| -> u64 {
            let ports = self.ports.iter().filter(|port| port.side == side);
            let waiting = ports.map(|port| to_u64(port.ends.len()));
            waiting.sum()
        };
        for side in [0, 1] {
            self.shared.ways[1 - side]
                .full
                .fetch_add(stuck(side), Relaxed);
        }
        self.close_mirrors(|_| true);
    }

    /// Continues until no packet is in transit, for a limited number of rounds.
    fn drain(&mut self) {
        for _ in 0..MAX_DRAINS {
            let moved = self.round();
            let is_pending = |port: &BridgePort| !port.ends.is_empty() || !port.waiting.is_empty();
            if !moved && !self.ports.iter().any(is_pending) {
                return;
            }
            if !moved {
                std::thread::sleep(RETRY);
            }
        }
    }

    /// Closes the mirrors of the selected sides.
    fn close_mirrors(&mut self, is_meant: impl Fn(usize) -> bool) {
        for side in [0, 1] {
            let closed = &self.shared.mirrors[side].closed;
            if is_meant(side) && !closed.load(Acquire) {
                let ports = self.ports.iter_mut();
                ports
                    .filter(|port| port.side == side)
                    .for_each(BridgePort::close);
                closed.store(true, Release);
                if let Some(MirrorWriter { outcome, event }) = self.mirrors[side].take() {
                    drop(outcome);
                    event.signal();
                }
            }
        }
    }

    /// Serves every port once; returns whether there was work.
    fn round(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        self.close_mirrors(|side| shared.mirrors[side].closing.load(Acquire));
        let mut moved = self.receive_verdicts();
        for at in 0..self.ports.len() {
            moved |= self.take_back(at);
            moved |= self.forward(at);
        }
        for at in 0..self.ports.len() {
            self.ports[at].feed();
            self.send(at);
            self.settle(at);
        }
        moved
    }

    pub(super) fn way(&self, at: usize) -> &Way {
        &self.shared.ways[self.ports[at].side & 1]
    }

    /// Returns cells of sent packets to the ports that received them.
    fn take_back(&mut self, at: usize) -> bool {
        let mut moved = false;
        while let Some(address) = self.ports[at].completed.pop() {
            moved = true;
            self.give_back(address);
        }
        moved
    }

    /// Counts the packets that the kernel has taken to send.
    fn settle(&mut self, at: usize) {
        let port = &mut self.ports[at];
        let mut taken = 0;
        while let Some(end) = port.ends.front()
            && port.transmit.has_taken(*end)
        {
            port.ends.pop_front();
            taken += 1;
        }
        let dropped = port.dropped.min(taken);
        port.dropped -= dropped;
        let from = 1 - port.side;
        self.shared.ways[from & 1]
            .sent
            .fetch_add(taken - dropped, Release);
    }

    fn give_back(&mut self, address: u64) {
        match self.memory.owner(address) {
            Some(CellOwner::Own { port, cell }) => {
                let port = self.ports.get_mut(port);
                port.into_iter().for_each(|port| port.idle.push(cell));
            }
            Some(CellOwner::Chunk { port }) => {
                let port = self.ports.get_mut(port);
                port.into_iter().for_each(|port| port.release(address));
            }
            None => {}
        }
    }

    fn send(&mut self, at: usize) {
        let from = 1 - self.ports[at].side;
        for _ in 0..MAX_SENDS {
            if !self.ports[at].transmit.is_pending() {
                return;
            }
            match self.ports[at].socket.send() {
                Sent::Done => return,
                Sent::MoreToDo => {}
                Sent::DroppedOne => {
                    self.ports[at].dropped += 1;
                    self.shared.ways[from & 1].full.fetch_add(1, Relaxed);
                }
            }
        }
    }

    pub(super) fn drop_cells(&mut self, pieces: &[RingPiece]) {
        for piece in pieces {
            self.give_back(piece.address);
        }
    }

    pub(super) fn push(&mut self, at: usize, pieces: &[RingPiece]) {
        let out = self.ports[at].way_out;
        let count = to_u32(pieces.len());
        if self.ports[out].transmit.room() < count {
            self.way(at).full.fetch_add(1, Release);
            return self.drop_cells(pieces);
        }
        for piece in pieces {
            self.ports[out].transmit.push(*piece);
        }
        let port = &mut self.ports[out];
        port.ends.push_back(port.transmit.end());
    }

    fn sleep(&mut self) {
        let pending = self.ports.iter().any(|port| !port.ends.is_empty());
        let retry = pending.then_some(RETRY);
        let limit = [retry, self.time_left()].into_iter().flatten().min();
        let queue = self
            .inline
            .as_ref()
            .and_then(|inline| inline.queue.as_ref());
        if queue.is_some_and(|queue| !queue.announce_sleep()) {
            return;
        }
        let mut polled: Vec<_> = self
            .ports
            .iter()
            .map(|port| PollFd::new(&*port.socket, PollFlags::IN))
            .collect();
        let ports = polled.len();
        polled.push(PollFd::new(&self.shared.wake, PollFlags::IN));
        polled.extend(queue.map(|queue| PollFd::new(queue, PollFlags::IN)));
        // An interruption by a signal counts as a wake-up.
        let _interrupted = poll(
            &mut polled,
            limit.and_then(|limit| limit.try_into().ok()).as_ref(),
        );
        let is_gone = |one: &PollFd<'_>| one.revents().intersects(PollFlags::ERR | PollFlags::HUP);
        if polled[..ports].iter().any(is_gone) {
            // An interface is gone: the owner will stop this thread.
            let _interrupted = poll(&mut polled[ports..=ports], RETRY.try_into().ok().as_ref());
        }
        self.shared.wake.clear();
        if let Some(inline) = &mut self.inline {
            inline.wake_up();
        }
    }
}

impl Drop for BridgeWorker {
    fn drop(&mut self) {
        // A mirror's source may wait for its end.
        self.close_mirrors(|_| true);
    }
}
