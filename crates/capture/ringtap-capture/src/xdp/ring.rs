// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rings that an AF_XDP socket shares with the kernel.
//!
//! Invariants
//! - One side produces, the other consumes; indices only grow and wrap, and places are masked, so
//!   that whatever an index says, no access leaves the ring.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use ringtap_ipc::mapping::{Access, Mapping};
use ringtap_pool::memory::Words;
use ringtap_pool::number::to_usize;
use rustix::net::xdp::{
    XSK_UNALIGNED_BUF_ADDR_MASK, XSK_UNALIGNED_BUF_OFFSET_SHIFT, XdpDescOptions, XdpRingFlags,
    XdpRingOffset,
};

/// Words of 64 bits in a descriptor: address, then length and options.
const DESCRIPTOR_WORDS: usize = 2;

/// The words of a ring.
struct Shared {
    producer: Words<AtomicU32>,
    consumer: Words<AtomicU32>,
    flags: Option<Words<AtomicU32>>,
    entries: Words<AtomicU64>,
    size: u32,
}

impl Shared {
    /// Maps a ring of `size` entries of `words` words each, at the page offset `page`.
    fn map(
        socket: impl AsFd,
        page: u64,
        places: &XdpRingOffset,
        size: u32,
        words: usize,
    ) -> io::Result<Self> {
        let place = |offset| usize::try_from(offset).map_err(io::Error::other);
        let count = place(u64::from(size))? * words;
        let first = place(places.desc)?;
        let bytes = first + count * size_of::<u64>();
        let mapping = Arc::new(Mapping::at(socket, page, bytes, Access::ReadWrite)?);
        let outside = || io::Error::other("the kernel tells places outside the ring");
        let word = |offset| mapping.words(place(offset)?, 1).ok_or_else(outside);
        Ok(Shared {
            producer: word(places.producer)?,
            consumer: word(places.consumer)?,
            flags: places.flags.map(word).transpose()?,
            entries: mapping.words(first, count).ok_or_else(outside)?,
            size,
        })
    }

    /// Entries that can be produced now by who has produced up to `next`.
    #[inline]
    fn room(&self, next: u32) -> u32 {
        let waiting = next.wrapping_sub(self.consumer[0].load(Acquire));
        self.size.saturating_sub(waiting)
    }

    fn needs_wakeup(&self) -> bool {
        let flags = self.flags.as_ref();
        flags.is_some_and(|flags| {
            flags[0].load(Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
        })
    }

    #[inline]
    fn place(&self, index: u32, words: usize) -> usize {
        let place = index & (self.size - 1);
        // A ring has at most 2^31 entries.
        to_usize(place) * words
    }
}

/// Whether a consumer is at this place or behind it; indices wrap.
fn has_passed(consumer: &Words<AtomicU32>, mark: u32) -> bool {
    let consumed = consumer[0].load(Acquire);
    consumed.wrapping_sub(mark).cast_signed() >= 0
}

/// What the kernel gives: descriptors of received packets.
pub struct Received {
    ring: Shared,
    /// Ours: consumed so far.
    next: u32,
}

/// One piece of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset of its first byte in the UMEM.
    pub address: u64,
    pub length: u32,
    /// The packet goes on in the next piece.
    pub goes_on: bool,
}

/// Where a packet begins, if its descriptor tells cell and offset apart, as for unaligned cells.
#[inline]
fn whole(address: u64) -> u64 {
    (address & XSK_UNALIGNED_BUF_ADDR_MASK) + (address >> XSK_UNALIGNED_BUF_OFFSET_SHIFT)
}

impl Received {
    pub fn map(
        socket: impl AsFd,
        page: u64,
        places: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let ring = Shared::map(socket, page, places, size, DESCRIPTOR_WORDS)?;
        Ok(Received { ring, next: 0 })
    }

    /// Pieces that wait.
    #[inline]
    pub fn waiting(&self) -> u32 {
        // Pairs with the kernel's release store: what it counted is complete.
        let produced = self.ring.producer[0].load(Acquire);
        produced.wrapping_sub(self.next).min(self.ring.size)
    }

    /// The piece that is `ahead` of the first one that waits.
    #[inline]
    pub fn peek(&self, ahead: u32) -> Piece {
        let at = self
            .ring
            .place(self.next.wrapping_add(ahead), DESCRIPTOR_WORDS);
        let address = whole(self.ring.entries[at].load(Relaxed));
        let bytes = self.ring.entries[at + 1].load(Relaxed).to_ne_bytes();
        let [a, b, c, d, options @ ..] = bytes;
        let options = u32::from_ne_bytes(options);
        Piece {
            address,
            length: u32::from_ne_bytes([a, b, c, d]),
            goes_on: options & XdpDescOptions::XDP_PKT_CONTD.bits() != 0,
        }
    }

    /// Gives the places of the first `count` pieces back to the kernel.
    #[inline]
    pub fn release(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        // Pairs with the kernel's acquire load: we have read what it may write over.
        self.ring.consumer[0].store(self.next, Release);
    }

    /// A look at the ring from another thread.
    pub fn watch(&self) -> RingWatch {
        RingWatch {
            producer: self.ring.producer.clone(),
            consumer: self.ring.consumer.clone(),
        }
    }
}

/// How far a ring is, for whoever waits for it.
pub struct RingWatch {
    producer: Words<AtomicU32>,
    consumer: Words<AtomicU32>,
}

impl RingWatch {
    /// Entries that were produced so far.
    pub fn produced(&self) -> u32 {
        self.producer[0].load(Acquire)
    }

    /// Whether the entries before `mark` are consumed.
    pub fn has_passed(&self, mark: u32) -> bool {
        has_passed(&self.consumer, mark)
    }
}

/// What the kernel takes: cells to fill.
pub struct Fill {
    ring: Shared,
    /// Ours: produced so far.
    next: u32,
}

impl Fill {
    pub fn map(
        socket: impl AsFd,
        page: u64,
        places: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let ring = Shared::map(socket, page, places, size, 1)?;
        Ok(Fill { ring, next: 0 })
    }

    /// Entries that can be produced now.
    pub fn room(&self) -> u32 {
        self.ring.room(self.next)
    }

    /// Hands these addresses over; there is room for them.
    pub fn push(&mut self, addresses: impl Iterator<Item = u64>) {
        for address in addresses {
            let at = self.ring.place(self.next, 1);
            self.ring.entries[at].store(address, Relaxed);
            self.next = self.next.wrapping_add(1);
        }
        // Pairs with the kernel's acquire load of the producer's index.
        self.ring.producer[0].store(self.next, Release);
    }

    /// Whether the kernel wants to be told that there is something new.
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// What the kernel takes: pieces of packets to send.
pub struct Transmit {
    ring: Shared,
    /// Ours: produced so far, published or not.
    next: u32,
}

impl Transmit {
    pub fn map(
        socket: impl AsFd,
        page: u64,
        places: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let ring = Shared::map(socket, page, places, size, DESCRIPTOR_WORDS)?;
        Ok(Transmit { ring, next: 0 })
    }

    /// Pieces that can be pushed now.
    pub fn room(&self) -> u32 {
        self.ring.room(self.next)
    }

    /// Puts a piece behind the others; there is room for it. Not seen before it is published.
    pub fn push(&mut self, piece: Piece) {
        let at = self.ring.place(self.next, DESCRIPTOR_WORDS);
        self.ring.entries[at].store(piece.address, Relaxed);
        let options = match piece.goes_on {
            true => XdpDescOptions::XDP_PKT_CONTD.bits(),
            false => 0,
        };
        let word = u64::from(piece.length) | u64::from(options) << 32;
        self.ring.entries[at + 1].store(word, Relaxed);
        self.next = self.next.wrapping_add(1);
    }

    /// Lets the kernel see what was pushed.
    pub fn publish(&self) {
        // Pairs with the kernel's acquire load of the producer's index.
        self.ring.producer[0].store(self.next, Release);
    }

    /// Whether the kernel has not yet taken all.
    pub fn is_pending(&self) -> bool {
        self.ring.consumer[0].load(Acquire) != self.next
    }

    /// Where the next piece will stand.
    pub fn end(&self) -> u32 {
        self.next
    }

    /// Whether the kernel has taken all pieces before this place.
    pub fn has_taken(&self, end: u32) -> bool {
        has_passed(&self.ring.consumer, end)
    }
}

/// What the kernel gives back: cells that were sent.
pub struct Completed {
    ring: Shared,
    /// Ours: consumed so far.
    next: u32,
}

impl Completed {
    pub fn map(
        socket: impl AsFd,
        page: u64,
        places: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let ring = Shared::map(socket, page, places, size, 1)?;
        Ok(Completed { ring, next: 0 })
    }

    /// Takes the next address.
    pub fn pop(&mut self) -> Option<u64> {
        // Pairs with the kernel's release store.
        if self.ring.producer[0].load(Acquire) == self.next {
            return None;
        }
        let address = self.ring.entries[self.ring.place(self.next, 1)].load(Relaxed);
        self.next = self.next.wrapping_add(1);
        self.ring.consumer[0].store(self.next, Release);
        Some(address)
    }
}
