// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet of a user-space bridge: completed, filtered, shown to readers, and then sent, dropped
//! or queued for its verdict.
//!
//! Invariants
//! - A packet's bytes do not change after its slot is written: readers may read them from then on.

use std::sync::atomic::Ordering::{Relaxed, Release};

use ringtap_capture::tap::Passing;
use ringtap_filter::Program;
use ringtap_ipc::verdict::Verdict;
use ringtap_pool::number::{to_u32, to_usize};

use super::checksum::completion;
use super::memory::CellOwner;
use super::worker::BridgeWorker;
use ringtap_capture::xdp::capture::{ADDRESSES, LaneCapture, TAG};
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
        if let Some(capture) = self.open_capture(at) {
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
        if let Some(capture) = self.open_capture(at) {
            capture.end();
        }
        let out = self.ports[at].way_out;
        self.ports[out].transmit.publish();
        self.pieces = pieces;
        packets > 0
    }

    /// The port's lane of the mirror, if the mirror is open.
    fn open_capture(&mut self, at: usize) -> Option<&mut LaneCapture> {
        let port = &mut self.ports[at];
        port.capture.as_mut().filter(|_| !port.is_closed)
    }

    fn decide(&mut self, at: usize, pieces: &mut [RingPiece]) {
        self.ports[at].take(pieces);
        let prepared = self.prepare(at, pieces);
        let verdict = prepared.and_then(|_| self.filter(pieces));
        // After all writes to the packet: readers may read it from now on.
        let noted = match prepared {
            Some(stamp) => self.note(at, pieces, &stamp),
            None => {
                self.open_capture(at)
                    .into_iter()
                    .for_each(LaneCapture::lose);
                None
            }
        };
        match verdict {
            Some(Verdict::Pass) => self.submit(at, pieces, noted),
            Some(Verdict::Drop) => {
                self.way(at).filtered.fetch_add(1, Release);
                self.drop_cells(pieces);
            }
            None => {
                self.way(at).full.fetch_add(1, Release);
                self.drop_cells(pieces);
            }
        }
    }

    /// Shows a packet to the readers, if it is mirrored: in place if it lies in one cell of the pool.
    /// Returns its sequence number if a rule wants it.
    fn note(&mut self, at: usize, pieces: &[RingPiece], stamp: &CellStamp) -> Option<u64> {
        let next = self.open_capture(at)?.next_sequence();
        let is_ours = |piece: &RingPiece| {
            self.memory.owner(piece.address) == Some(CellOwner::Chunk { port: at })
        };
        let lies_in_pool = pieces.iter().all(is_ours);
        let frame = match (lies_in_pool, pieces) {
            (true, [_]) => Vec::new(),
            _ => self.frame(pieces),
        };
        let capture = self.open_capture(at)?;
        capture.account(stamp);
        match (lies_in_pool, pieces) {
            (true, [piece]) => {
                let length = to_usize(piece.length);
                match capture.cells.locate(piece.address) {
                    Some(place) => capture.note(place, length, stamp),
                    None => capture.lose(),
                }
            }
            (true, _) => capture.copy(&frame, stamp),
            (false, _) => capture.miss(&frame),
        }
        let is_noted = capture.next_sequence() != next;
        self.gathered = frame;
        is_noted.then_some(next)
    }

    /// Restores a stripped tag and completes a missing checksum, in place; returns the stamp.
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
        if self.completes_checksums[self.ports[at].side & 1] {
            self.complete_checksum(pieces);
        }
        let bytes = pieces.iter().map(|piece| u64::from(piece.length)).sum();
        self.way(at).bytes.fetch_add(bytes, Relaxed);
        Some(stamp)
    }

    fn complete_checksum(&mut self, pieces: &[RingPiece]) {
        let completion = match pieces {
            // SAFETY: as in `prepare`.
            [piece] => unsafe { self.memory.bytes(*piece, 0) }.and_then(|frame| completion(frame)),
            _ => {
                let frame = self.frame(pieces);
                let completion = completion(&frame);
                self.gathered = frame;
                completion
            }
        };
        let Some((field, value)) = completion else {
            return;
        };
        // SAFETY: as in `prepare`.
        let first = unsafe { self.memory.bytes(pieces[0], 0) };
        if let Some(place) = first.and_then(|bytes| bytes.get_mut(field..field + 2)) {
            place.copy_from_slice(&value);
        }
    }

    /// Copies the packet's pieces side by side; the bridge sends the original pieces.
    fn frame(&mut self, pieces: &[RingPiece]) -> Vec<u8> {
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        for piece in pieces {
            // SAFETY: as in `prepare`.
            let bytes = unsafe { self.memory.bytes(*piece, 0) };
            gathered.extend_from_slice(bytes.unwrap_or_default());
        }
        gathered
    }

    /// The verdict of the filter.
    fn filter(&mut self, pieces: &[RingPiece]) -> Option<Verdict> {
        if let [piece] = pieces {
            // SAFETY: as in `prepare`.
            let bytes = unsafe { self.memory.bytes(*piece, 0) }?;
            return Some(verdict(&self.passing, bytes));
        }
        let frame = self.frame(pieces);
        let verdict = verdict(&self.passing, &frame);
        self.gathered = frame;
        Some(verdict)
    }
}

fn verdict(passing: &Passing, frame: &[u8]) -> Verdict {
    let matches = |filter: &Program| filter.matches(frame, to_u32(frame.len()));
    let passes = match passing {
        Passing::All => true,
        Passing::Matching(filter) => matches(filter),
        Passing::Others(filter) => !matches(filter),
    };
    match passes {
        true => Verdict::Pass,
        false => Verdict::Drop,
    }
}
