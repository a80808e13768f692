// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet of a user-space bridge: completed, filtered, shown to readers, and then sent, dropped
//! or queued for its verdict.
//!
//! Invariants
//! - A packet's bytes do not change after its slot is written: readers may read them from then on.

use std::sync::atomic::Ordering::{Relaxed, Release};

use ringtap_capture::tap::Passing;
use ringtap_filter::Program;
use ringtap_pool::number::to_u32;

use super::checksum::completion;
use super::memory::CellOwner;
use super::worker::BridgeWorker;
use ringtap_capture::xdp::capture::{ADDRESSES, TAG};
use ringtap_capture::xdp::layout::{CellStamp, STAMP_BYTES};
use ringtap_capture::xdp::ring::RingPiece;

/// Maximum number of packets of one port in a round.
const BATCH: u32 = 64;

impl BridgeWorker {
    /// Decides about the packets that arrived at a port.
    pub(super) fn forward(&mut self, at: usize) -> bool {
        let waiting = self.ports[at].received.waiting();
        if waiting == 0 {
            return false;
        }
        if let Some(capture) = self.ports[at].open_capture() {
            capture.begin();
        }
        let (mut taken, mut packets) = (0, 0);
        let mut pieces = std::mem::take(&mut self.pieces);
        while packets < BATCH && taken < waiting {
            pieces.clear();
            let mut is_whole = false;
            while taken < waiting && !is_whole {
                let piece = self.ports[at].received.peek(taken);
                pieces.push(piece);
                taken += 1;
                is_whole = !piece.goes_on;
            }
            if !is_whole {
                taken -= to_u32(pieces.len());
                break;
            }
            self.decide(at, &mut pieces);
            packets += 1;
        }
        self.ports[at].received.release(taken);
        if let Some(capture) = self.ports[at].open_capture() {
            capture.end();
        }
        let out = self.ports[at].way_out;
        self.ports[out].transmit.publish();
        self.pieces = pieces;
        packets > 0
    }

    fn decide(&mut self, at: usize, pieces: &mut [RingPiece]) {
        self.ports[at].take(pieces);
        let Some(stamp) = self.prepare(at, pieces) else {
            if let Some(capture) = self.ports[at].open_capture() {
                capture.lose();
            }
            self.way(at).full.fetch_add(1, Release);
            return self.drop_cells(pieces);
        };
        let (passes, noted) = self.look(at, pieces, &stamp);
        if passes {
            return self.submit(at, pieces, noted);
        }
        self.way(at).filtered.fetch_add(1, Release);
        self.drop_cells(pieces);
    }

    /// Completes a missing checksum, in place, filters a packet, and shows it to the readers, if it is
    /// mirrored: in place if it lies in one cell of the pool. Returns whether it passes the filter, and
    /// its sequence number in the mirror if a rule wants it.
    fn look(&mut self, at: usize, pieces: &[RingPiece], stamp: &CellStamp) -> (bool, Option<u64>) {
        let is_ours = |piece: &RingPiece| {
            self.memory.owner(piece.address) == Some(CellOwner::Chunk { port: at })
        };
        let lies_in_pool = pieces.iter().all(is_ours);
        let mut gathered = None;
        if pieces.len() > 1 {
            // The pieces side by side; the bridge sends the original pieces.
            self.gathered.clear();
            for piece in pieces {
                // SAFETY: as in `prepare`.
                let bytes = unsafe { self.memory.bytes(*piece, 0) };
                self.gathered.extend_from_slice(bytes.unwrap_or_default());
            }
            gathered = Some(&mut self.gathered);
        }
        // SAFETY: as in `prepare`.
        let first = unsafe { self.memory.bytes(pieces[0], 0) }.unwrap_or_default();
        let port = &mut self.ports[at];
        if self.completes_checksums[port.side & 1]
            && let Some((field, value)) = completion(gathered.as_deref().map_or(first, |all| all))
        {
            let all = gathered.as_deref_mut().map(Vec::as_mut_slice);
            for bytes in [Some(&mut *first), all].into_iter().flatten() {
                if let Some(place) = bytes.get_mut(field..field + 2) {
                    place.copy_from_slice(&value);
                }
            }
        }
        let frame: &[u8] = gathered.map_or(first, |all| all);
        let passes = passes(&self.passing, frame);
        // After all writes to the packet: readers may read it from now on.
        let noted = port.open_capture().and_then(|capture| {
            let next = capture.next_sequence();
            capture.account(stamp);
            match (lies_in_pool, pieces) {
                (true, [piece]) => match capture.cells.locate(piece.address) {
                    Some(place) => capture.note(place, frame.len(), stamp),
                    None => capture.lose(),
                },
                (true, _) => capture.copy(frame, stamp),
                (false, _) => capture.miss(frame),
            }
            (capture.next_sequence() != next).then_some(next)
        });
        (passes, noted)
    }

    /// Restores a stripped tag, in place; returns the stamp.
    fn prepare(&mut self, at: usize, pieces: &mut [RingPiece]) -> Option<CellStamp> {
        let first = pieces.first_mut()?;
        // SAFETY: the kernel returned this piece and did not get its cell back; its slot is written
        // later.
        let bytes = unsafe { self.memory.bytes(*first, STAMP_BYTES) }?;
        let stamp = CellStamp::from_bytes(bytes.first_chunk()?);
        if let Some(tag) = stamp.tag
            && bytes.len() >= STAMP_BYTES + ADDRESSES
        {
            // Overwrites the stamp, which was read: the addresses move forward, the rest stays.
            bytes.copy_within(STAMP_BYTES..STAMP_BYTES + ADDRESSES, STAMP_BYTES - TAG);
            let place = STAMP_BYTES - TAG + ADDRESSES;
            bytes[place..place + TAG].copy_from_slice(&tag);
            first.address -= 4;
            first.length += 4;
        }
        let bytes = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        self.way(at).bytes.fetch_add(bytes, Relaxed);
        Some(stamp)
    }
}

/// Whether a packet passes the filter.
fn passes(passing: &Passing, frame: &[u8]) -> bool {
    let matches = |filter: &Program| filter.matches(frame, to_u32(frame.len()));
    match passing {
        Passing::All => true,
        Passing::Matching(filter) => matches(filter),
        Passing::Others(filter) => !matches(filter),
    }
}
