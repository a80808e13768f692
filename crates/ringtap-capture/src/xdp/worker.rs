// SPDX-License-Identifier: MIT OR Apache-2.0
//! One lane's thread: notes the packets of one socket in the pool, where they lie, and hands the
//! cells of recycled chunks to the kernel.
//!
//! Invariants
//! - A packet is in the pool, unwanted, or counted as lost; a cell is dealt with exactly once.
//! - A chunk is given to the kernel only after the readers have given it back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringtap_pool::format::flag;
use ringtap_pool::writer::{LaneCounters, LaneWriter, PacketMeta};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::book::{Book, Settled};
use super::cells::{Cells, Place, Standing};
use super::ring::{Fill, Piece, Received};
use super::words::{STAMP_BYTES, Stamp};
use crate::classify::Judge;
use crate::tap::clock;

/// Packets that become visible at a time.
const BATCH: u32 = 64;
/// How far ahead the stamps and headers of packets are asked for.
const AHEAD: u32 = 8;
/// While packets come fast the thread naps instead of being woken, which would cost the sender.
const NAP: Duration = Duration::from_micros(100);
/// A sleep that was shorter shows that packets come fast.
const SHORT: Duration = Duration::from_micros(300);
/// How often recycled chunks are looked for when the kernel has few cells.
const HUNGRY_MS: i64 = 1;
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// Length of a source and a destination address, after which a VLAN tag stands.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// What the thread needs.
pub(super) struct Parts {
    pub(super) received: Received,
    pub(super) fill: Fill,
    pub(super) cells: Cells,
    pub(super) writer: LaneWriter,
    pub(super) judge: Judge,
    pub(super) book: Arc<Book>,
    pub(super) queue: u16,
    /// Most cells that the kernel gets at a time.
    pub(super) most_cells: u32,
    pub(super) busy_poll: bool,
}

/// One lane's thread.
pub(super) struct Worker {
    parts: Parts,
    lane: Arc<LaneCounters>,
    settled: Settled,
    tai_minus_utc_ns: i64,
    clock_set: Instant,
    last_time_ns: u64,
    is_starved: bool,
    comes_fast: bool,
    /// The pieces of a packet that lies in several cells.
    gathered: Vec<u8>,
}

impl Worker {
    pub(super) fn new(parts: Parts) -> std::io::Result<Self> {
        let mut worker = Worker {
            lane: parts.writer.counters(),
            parts,
            settled: Settled::default(),
            tai_minus_utc_ns: clock::tai_minus_utc_ns()?,
            clock_set: Instant::now(),
            last_time_ns: 0,
            is_starved: false,
            comes_fast: false,
            gathered: Vec::new(),
        };
        // Before the first packet, so that none is lost.
        worker.feed();
        Ok(worker)
    }

    /// Captures until it is stopped, then what is left.
    pub(super) fn work(&mut self) {
        while !self.parts.book.is_stopping() {
            self.feed();
            if self.take_batch() == 0 {
                self.idle();
            }
        }
        while self.take_batch() > 0 {}
        self.parts.cells.spent();
        self.parts.writer.close();
        self.parts.judge.end();
        self.settle();
    }

    /// Hands cells to the kernel, as many as it may have.
    fn feed(&mut self) {
        let Parts {
            cells,
            writer,
            fill,
            most_cells,
            ..
        } = &mut self.parts;
        let mut is_starved = false;
        while cells.held() + cells.per_chunk() <= *most_cells && fill.room() >= cells.per_chunk() {
            let next = cells.take_back().or_else(|| {
                std::iter::from_fn(|| writer.take_free()).find(|id| cells.returned(*id))
            });
            let Some(id) = next else {
                is_starved = true;
                break;
            };
            fill.push(cells.hand_over(id));
        }
        if is_starved != self.is_starved {
            self.is_starved = is_starved;
            self.parts.book.set_starved(is_starved);
        }
        if self.parts.fill.needs_wakeup() {
            self.parts.book.socket.kick();
        }
    }

    /// Takes what waits, as far as a batch goes; tells how many packets it was.
    fn take_batch(&mut self) -> u32 {
        let waiting = self.parts.received.waiting();
        if waiting == 0 {
            return 0;
        }
        self.parts.judge.begin();
        let (mut pieces, mut packets) = (0, 0);
        while packets < BATCH {
            let Some(count) = self.pieces_of_packet(pieces, waiting) else {
                break;
            };
            self.look_ahead(pieces + AHEAD, waiting);
            match count {
                1 => self.take(self.parts.received.peek(pieces)),
                _ => self.take_several(pieces, count),
            }
            pieces += count;
            packets += 1;
        }
        self.parts.received.release(pieces);
        self.parts.writer.publish();
        self.parts.judge.end();
        // At once, so that the chunk comes back as soon as it is read.
        if self.parts.cells.open_is_used_up() {
            self.parts.cells.spent();
            self.parts.writer.close();
        }
        self.settle();
        packets
    }

    /// Pieces of the packet that begins at `first`; `None` if it is not there as a whole.
    #[inline]
    fn pieces_of_packet(&self, first: u32, waiting: u32) -> Option<u32> {
        let mut last = first;
        while last < waiting {
            if !self.parts.received.peek(last).goes_on {
                return Some(last - first + 1);
            }
            last += 1;
        }
        None
    }

    #[inline]
    fn look_ahead(&self, piece: u32, waiting: u32) {
        if piece < waiting {
            let address = self.parts.received.peek(piece).address;
            if let Some(Place { chunk, at }) = self.parts.cells.locate(address) {
                self.parts.writer.will_look_at(chunk, at - STAMP_BYTES);
            }
        }
    }

    /// Takes a packet that lies in one cell.
    #[inline]
    fn take(&mut self, piece: Piece) {
        let Some(place) = self.parts.cells.locate(piece.address) else {
            return self.lose();
        };
        self.parts.cells.came_back(place.chunk);
        let length = usize::try_from(piece.length).unwrap_or(0);
        let Some(stamp) = self.stamp(place) else {
            return self.lose();
        };
        let length = match stamp.tag {
            None => length,
            Some(tag) => match self.put_tag_back(place, length, tag) {
                Some(longer) => longer,
                None => return self.lose(),
            },
        };
        let Some(meta) = self.judge(place, length, &stamp) else {
            return;
        };
        self.note(&meta, place, length);
    }

    /// Takes a packet whose pieces lie in several cells: it is put together in the chunk.
    fn take_several(&mut self, first: u32, count: u32) {
        let mut stamp = None;
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        for index in first..first + count {
            let piece = self.parts.received.peek(index);
            let Some(place) = self.parts.cells.locate(piece.address) else {
                continue;
            };
            self.parts.cells.came_back(place.chunk);
            if index == first {
                stamp = self.stamp(place);
            }
            let length = usize::try_from(piece.length).unwrap_or(0);
            gathered.extend_from_slice(self.bytes(place, length).unwrap_or_default());
        }
        if let Some(tag) = stamp.and_then(|stamp| stamp.tag)
            && gathered.len() >= ADDRESSES
        {
            gathered.splice(ADDRESSES..ADDRESSES, tag);
        }
        match stamp {
            Some(stamp) => self.copy(&gathered, &stamp),
            None => self.lose(),
        }
        self.gathered = gathered;
    }

    /// The bytes of a packet that the kernel has just given.
    #[inline]
    fn bytes(&mut self, place: Place, length: usize) -> Option<&mut [u8]> {
        // SAFETY: the kernel gave this cell back (`place` is that of a received piece), and its
        // packet is noted in the pool only after this borrow has ended.
        unsafe { self.parts.writer.cell(place.chunk, place.at, length) }
    }

    #[inline]
    fn stamp(&mut self, place: Place) -> Option<Stamp> {
        let at = place.at.checked_sub(STAMP_BYTES)?;
        let front = Place { at, ..place };
        let stamp = Stamp::from_bytes(self.bytes(front, STAMP_BYTES)?.first_chunk()?);
        let settled = &mut self.settled;
        settled.seen = settled.seen.max(stamp.seen);
        let [a, b, c, d, ..] = settled.unwanted.to_le_bytes();
        let step = stamp
            .unwanted
            .wrapping_sub(u32::from_le_bytes([a, b, c, d]));
        // On several CPUs at a time stamps may be a little out of order.
        if step.cast_signed() > 0 {
            settled.unwanted += u64::from(step);
        }
        Some(stamp)
    }

    /// Puts the tag that the driver had stripped back, in the cell; gives the length with it.
    #[cold]
    fn put_tag_back(&mut self, place: Place, length: usize, tag: [u8; TAG]) -> Option<usize> {
        let longer = length + TAG;
        let bytes = self.bytes(place, longer)?;
        if length < ADDRESSES {
            return Some(length);
        }
        bytes.copy_within(ADDRESSES..length, ADDRESSES + TAG);
        bytes[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag);
        Some(longer)
    }

    /// What is known of a packet that somebody wants; `None`, and counted, if nobody does.
    #[inline]
    fn judge(&mut self, place: Place, length: usize, stamp: &Stamp) -> Option<PacketMeta> {
        if !self.parts.judge.has_rules() {
            return Some(self.meta(stamp, length, (u64::MAX, None)));
        }
        let kept = self.parts.writer.captured_length(length);
        // SAFETY: as in `bytes`, which would borrow the judge, too.
        let data = unsafe { self.parts.writer.cell(place.chunk, place.at, kept) }?;
        let wire = u32::try_from(length).unwrap_or(u32::MAX);
        let verdict = self.parts.judge.judge(data, wire)?;
        Some(self.meta(stamp, length, (verdict.mask, verdict.hash)))
    }

    #[inline]
    fn meta(&mut self, stamp: &Stamp, length: usize, who: (u64, Option<u32>)) -> PacketMeta {
        let time_ns = stamp.time_ns.saturating_add_signed(-self.tai_minus_utc_ns);
        self.last_time_ns = self.last_time_ns.max(time_ns);
        PacketMeta {
            time_ns: self.last_time_ns,
            wire_length: u32::try_from(length).unwrap_or(u32::MAX),
            flags: match stamp.tag {
                None => 0,
                Some(_) => flag::VLAN_RESTORED,
            },
            queue: self.parts.queue,
            mask: who.0,
            hash: who.1,
        }
    }

    /// Notes a packet where it lies, in the chunk of its cell.
    #[inline]
    fn note(&mut self, meta: &PacketMeta, place: Place, length: usize) {
        let standing = self.parts.cells.standing(place.chunk);
        let is_open = match standing {
            Standing::Open => true,
            Standing::Fresh => self.open(place.chunk),
            Standing::Spent => false,
        };
        let in_place = is_open && place.at.is_multiple_of(8);
        if in_place && self.parts.writer.stage_in_place(meta, place.at, length) {
            return;
        }
        self.copy_cell(meta, place, length);
    }

    /// A packet of a chunk that is sealed already, or at an odd place.
    #[cold]
    fn copy_cell(&mut self, meta: &PacketMeta, place: Place, length: usize) {
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        gathered.extend_from_slice(self.bytes(place, length).unwrap_or_default());
        self.stage_copy(meta, &gathered);
        self.gathered = gathered;
    }

    #[cold]
    fn copy(&mut self, bytes: &[u8], stamp: &Stamp) {
        let kept = self.parts.writer.captured_length(bytes.len());
        let wire = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if let Some(verdict) = self.parts.judge.judge(&bytes[..kept], wire) {
            let meta = self.meta(stamp, bytes.len(), (verdict.mask, verdict.hash));
            self.stage_copy(&meta, bytes);
        }
    }

    fn stage_copy(&mut self, meta: &PacketMeta, bytes: &[u8]) {
        if self.parts.writer.stage_copy(meta, [bytes]) {
            return;
        }
        // The open chunk has no room for copies: the next one has.
        let opened = match self.parts.cells.oldest_fresh() {
            Some(id) => self.open(id),
            None => false,
        };
        if !opened || !self.parts.writer.stage_copy(meta, [bytes]) {
            self.lose();
        }
    }

    fn open(&mut self, chunk: ringtap_pool::ids::ChunkId) -> bool {
        self.parts.cells.opened(chunk);
        self.parts.writer.open(chunk)
    }

    /// Counts a packet that found no room.
    #[cold]
    fn lose(&mut self) {
        self.settled.no_chunk += 1;
        self.parts.writer.count_lost(1);
    }

    fn settle(&mut self) {
        self.settled.captured = self.lane.captured();
        self.settled.judged_unwanted = self.parts.judge.unwanted();
        self.parts.book.settle(self.settled);
    }

    /// Nothing waits: sleeps until something may.
    fn idle(&mut self) {
        if self.clock_set.elapsed() >= CLOCK_INTERVAL {
            self.clock_set = Instant::now();
            // It could be read when the source was opened, so it can now.
            self.tai_minus_utc_ns = clock::tai_minus_utc_ns().unwrap_or(self.tai_minus_utc_ns);
        }
        if self.parts.busy_poll {
            return self.parts.book.socket.kick();
        }
        if self.comes_fast {
            self.comes_fast = false;
            std::thread::sleep(NAP);
            if self.parts.received.waiting() > 0 {
                self.comes_fast = true;
                return;
            }
        }
        let is_hungry = self.parts.cells.held() < self.parts.most_cells / 2;
        let start = Instant::now();
        self.sleep(is_hungry);
        self.comes_fast = start.elapsed() < SHORT;
    }

    fn sleep(&self, is_hungry: bool) {
        let book = &self.parts.book;
        let mut polled = [
            PollFd::new(&book.stop, PollFlags::IN),
            PollFd::new(&book.socket, PollFlags::IN),
        ];
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: HUNGRY_MS * 1_000_000,
        };
        // A signal that interrupts is as good as a packet.
        let _interrupted = poll(&mut polled, is_hungry.then_some(&limit));
        // A socket whose interface is gone is readable for ever: its source will be stopped.
        if polled[1]
            .revents()
            .intersects(PollFlags::ERR | PollFlags::HUP)
        {
            let _interrupted = poll(&mut polled[..1], None);
        }
    }
}
