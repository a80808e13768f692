// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread of one lane: receives the packets of one socket and refills the kernel with recycled cells.
//!
//! Invariants
//! - Each received cell is handled exactly once.
//! - The kernel gets a chunk only after the readers have returned it.

use std::time::{Duration, Instant};

use ringtap_pool::number::to_usize;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::capture::{ADDRESSES, LaneCapture, TAG};
use super::cells::CellPosition;
use super::ring::{Fill, Received, RingPiece};

/// Packets published at a time.
const BATCH: u32 = 64;
/// Prefetch distance for stamps and headers, in packets.
const AHEAD: u32 = 8;
/// At high rates the thread sleeps this long instead of waiting for wake-ups, which cost the sender.
const PAUSE: Duration = Duration::from_micros(100);
/// A shorter sleep indicates a high packet rate.
const SHORT: Duration = Duration::from_micros(300);
/// Interval between checks for recycled chunks while the kernel has few cells.
const FEW_CELLS_MS: i64 = 1;

/// One lane's thread.
pub(super) struct QueueWorker {
    received: Received,
    fill: Fill,
    capture: LaneCapture,
    /// Maximum number of cells that the kernel holds.
    max_cells: u32,
    busy_poll: bool,
    is_starved: bool,
    comes_fast: bool,
    /// Buffer for packets that span several cells.
    gathered: Vec<u8>,
}

impl QueueWorker {
    pub(super) fn new(
        received: Received,
        fill: Fill,
        capture: LaneCapture,
        max_cells: u32,
        busy_poll: bool,
    ) -> Self {
        let mut worker = QueueWorker {
            received,
            fill,
            capture,
            max_cells,
            busy_poll,
            is_starved: false,
            comes_fast: false,
            gathered: Vec::new(),
        };
        // Before the first packet arrives.
        worker.feed();
        worker
    }

    /// Captures until stopped, then captures the remaining packets.
    pub(super) fn work(&mut self) {
        while !self.capture.statistics.is_stopping() {
            self.feed();
            if self.take_batch() == 0 {
                self.idle();
            }
        }
        while self.take_batch() > 0 {}
        self.capture.finish();
    }

    /// Gives the kernel as many cells as it may hold.
    fn feed(&mut self) {
        let QueueWorker {
            capture,
            fill,
            max_cells,
            ..
        } = self;
        let mut is_starved = false;
        let each = capture.cells.per_chunk();
        while capture.cells.held() + each <= *max_cells && fill.room() >= each {
            let Some(id) = capture.next_chunk() else {
                is_starved = true;
                break;
            };
            fill.push(capture.cells.hand_over(id));
        }
        let statistics = &capture.statistics;
        if is_starved != self.is_starved {
            self.is_starved = is_starved;
            statistics.set_starved(is_starved);
        }
        if fill.needs_wakeup() {
            statistics.socket.kick();
        }
    }

    /// Captures up to one batch of packets; returns their number.
    fn take_batch(&mut self) -> u32 {
        let waiting = self.received.waiting();
        if waiting == 0 {
            return 0;
        }
        self.capture.begin();
        let (mut pieces, mut packets) = (0, 0);
        while packets < BATCH {
            let Some(count) = self.pieces_of_packet(pieces, waiting) else {
                break;
            };
            if pieces + AHEAD < waiting {
                let ahead = self.received.peek(pieces + AHEAD);
                self.capture.prefetch(ahead.address);
            }
            match count {
                1 => self.take(self.received.peek(pieces)),
                _ => self.take_several(pieces, count),
            }
            pieces += count;
            packets += 1;
        }
        self.received.release(pieces);
        self.capture.end();
        packets
    }

    /// Number of pieces of the packet at `first`; `None` if pieces are missing.
    #[inline]
    fn pieces_of_packet(&self, first: u32, waiting: u32) -> Option<u32> {
        let mut last = first;
        while last < waiting {
            if !self.received.peek(last).goes_on {
                return Some(last - first + 1);
            }
            last += 1;
        }
        None
    }

    /// Captures a packet that lies in one cell.
    #[inline]
    fn take(&mut self, piece: RingPiece) {
        let capture = &mut self.capture;
        let Some(position) = capture.cells.locate(piece.address) else {
            return capture.lose();
        };
        let is_last = capture.cells.came_back(position.chunk);
        self.take_cell(position, to_usize(piece.length));
        if is_last {
            self.capture.cells.let_go(position.chunk);
        }
    }

    #[inline]
    fn take_cell(&mut self, position: CellPosition, length: usize) {
        let Some(stamp) = self.capture.stamp(position) else {
            return self.capture.lose();
        };
        let length = match stamp.tag {
            None => length,
            Some(tag) => match self.put_tag_back(position, length, tag) {
                Some(longer) => longer,
                None => return self.capture.lose(),
            },
        };
        self.capture.note(position, length, &stamp);
    }

    /// Captures a packet that spans several cells by copying the pieces into the chunk.
    fn take_several(&mut self, first: u32, count: u32) {
        let mut stamp = None;
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        let capture = &mut self.capture;
        for index in first..first + count {
            let piece = self.received.peek(index);
            let Some(position) = capture.cells.locate(piece.address) else {
                continue;
            };
            capture.cells.came_back(position.chunk);
            if index == first {
                stamp = capture.stamp(position);
            }
            let length = to_usize(piece.length);
            gathered.extend_from_slice(capture.bytes(position, length).unwrap_or_default());
        }
        if let Some(tag) = stamp.and_then(|stamp| stamp.tag)
            && gathered.len() >= ADDRESSES
        {
            gathered.splice(ADDRESSES..ADDRESSES, tag);
        }
        match stamp {
            Some(stamp) => self.capture.copy(&gathered, &stamp),
            None => self.capture.lose(),
        }
        self.gathered = gathered;
        // Last: the copy may have had to open a chunk.
        for index in first..first + count {
            let piece = self.received.peek(index);
            let cells = &mut self.capture.cells;
            if let Some(position) = cells.locate(piece.address) {
                cells.let_go(position.chunk);
            }
        }
    }

    /// Restores a stripped VLAN tag in the cell; returns the length including the tag.
    #[cold]
    fn put_tag_back(
        &mut self,
        position: CellPosition,
        length: usize,
        tag: [u8; TAG],
    ) -> Option<usize> {
        let longer = length + TAG;
        let bytes = self.capture.bytes(position, longer)?;
        if length < ADDRESSES {
            return Some(length);
        }
        bytes.copy_within(ADDRESSES..length, ADDRESSES + TAG);
        bytes[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag);
        Some(longer)
    }

    /// Sleeps until packets, chunks or a stop request may be there.
    fn idle(&mut self) {
        if self.busy_poll {
            return self.capture.statistics.socket.kick();
        }
        if self.comes_fast {
            self.comes_fast = false;
            std::thread::sleep(PAUSE);
            if self.received.waiting() > 0 {
                self.comes_fast = true;
                return;
            }
        }
        let has_few_cells = self.capture.cells.held() < self.max_cells / 2;
        let start = Instant::now();
        self.sleep(has_few_cells);
        self.comes_fast = start.elapsed() < SHORT;
    }

    fn sleep(&self, has_few_cells: bool) {
        let statistics = &self.capture.statistics;
        let mut polled = [
            PollFd::new(&statistics.stop, PollFlags::IN),
            PollFd::new(&*statistics.socket, PollFlags::IN),
        ];
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: FEW_CELLS_MS * 1_000_000,
        };
        // An interruption by a signal counts as a wake-up.
        let _interrupted = poll(&mut polled, has_few_cells.then_some(&limit));
        // A socket stays readable after its interface is removed; the source then stops the thread.
        if polled[1]
            .revents()
            .intersects(PollFlags::ERR | PollFlags::HUP)
        {
            let _interrupted = poll(&mut polled[..1], None);
        }
    }
}
