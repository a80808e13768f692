// SPDX-License-Identifier: MIT OR Apache-2.0
//! One receive queue of one side: its socket's rings, its cells, and its lane of the mirror.
//!
//! Invariants
//! - The kernel gets cells of the mirror's chunks while some are free, and own cells otherwise:
//!   receiving never waits for readers.

use std::collections::VecDeque;
use std::sync::Arc;

use ringtap_pool::number::{to_u32, to_usize};

use super::memory::{CELLS, LEAST};
use super::waiting::WaitingPackets;
use ringtap_capture::xdp::capture::LaneCapture;
use ringtap_capture::xdp::ring::{Completed, Fill, Received, RingPiece, Transmit};
use ringtap_capture::xdp::socket::XskSocket;

/// One receive queue of one interface, and the port that sends its packets.
pub(super) struct BridgePort {
    /// 0 or 1.
    pub(super) side: usize,
    pub(super) socket: Arc<XskSocket>,
    pub(super) received: Received,
    pub(super) fill: Fill,
    pub(super) transmit: Transmit,
    pub(super) completed: Completed,
    /// The port of the other side that sends these packets.
    pub(super) way_out: usize,
    /// Own cells that the kernel gets in the next round.
    pub(super) idle: Vec<u64>,
    /// Own cells that the kernel holds.
    pub(super) filled: u32,
    /// End of each packet that the kernel has not yet taken to send.
    pub(super) ends: VecDeque<u32>,
    /// Packets that the kernel took and dropped, still counted among the taken packets.
    pub(super) dropped: u64,
    /// This queue's lane of the mirror, until the mirror is closed.
    pub(super) capture: Option<LaneCapture>,
    /// Packets waiting for a verdict.
    pub(super) waiting: WaitingPackets,
    /// Whether the mirror is closed; the lane's cells are then not reused.
    pub(super) is_closed: bool,
}

impl BridgePort {
    /// This queue's lane of the mirror, if the mirror is open.
    pub(super) fn open_capture(&mut self) -> Option<&mut LaneCapture> {
        self.capture.as_mut().filter(|_| !self.is_closed)
    }

    /// Gives the kernel free cells.
    pub(super) fn feed(&mut self) {
        let mut held = self.filled;
        let mut least = CELLS;
        if let Some(capture) = self.capture.as_mut().filter(|_| !self.is_closed) {
            let each = capture.cells.per_chunk();
            let most = CELLS.saturating_sub(self.filled);
            while capture.cells.held() + each <= most && self.fill.room() >= each {
                let Some(id) = capture.next_chunk() else {
                    break;
                };
                self.fill.push(capture.cells.hand_over(id));
            }
            held += capture.cells.held();
            least = LEAST;
        }
        let wanted = least.saturating_sub(held).min(self.fill.room());
        let count = self.idle.len().min(to_usize(wanted));
        if count > 0 {
            // The cells that returned last are in the caches.
            self.fill.push(self.idle.drain(self.idle.len() - count..));
            self.filled += to_u32(count);
        }
        if self.fill.needs_wakeup() {
            self.socket.kick();
        }
    }

    /// Takes over received pieces; the port owns their cells until the kernel gets them again.
    pub(super) fn take(&mut self, pieces: &[RingPiece]) {
        for piece in pieces {
            let capture = self.capture.as_mut();
            let place =
                capture.and_then(|capture| Some((capture.cells.locate(piece.address)?, capture)));
            match place {
                Some((place, capture)) => {
                    capture.cells.came_back(place.chunk);
                    capture.cells.keep(place.chunk);
                }
                None => self.filled = self.filled.saturating_sub(1),
            }
        }
    }

    /// Ends the use of a cell of this port's lane.
    pub(super) fn release(&mut self, address: u64) {
        if let Some(capture) = &mut self.capture
            && let Some(place) = capture.cells.locate(address)
        {
            capture.cells.release(place.chunk);
        }
    }

    /// Closes the lane of the mirror.
    pub(super) fn close(&mut self) {
        if let Some(capture) = self.open_capture() {
            capture.finish();
            self.is_closed = true;
        }
    }
}
