// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rings that an AF_XDP socket shares with the kernel.
//!
//! Invariants
//! - One side produces, the other consumes. Indices only grow and wrap; positions are masked, so no
//!   index leads outside the ring.

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
struct SharedRing {
    producer: Words<AtomicU32>,
    consumer: Words<AtomicU32>,
    flags: Option<Words<AtomicU32>>,
    entries: Words<AtomicU64>,
    size: u32,
}

impl SharedRing {
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
        Ok(SharedRing {
            producer: word(places.producer)?,
            consumer: word(places.consumer)?,
            flags: places.flags.map(word).transpose()?,
            entries: mapping.words(first, count).ok_or_else(outside)?,
            size,
        })
    }

    /// Entries that a producer at index `next` can still write.
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

/// Whether a consumer has reached `mark`; indices wrap.
fn has_passed(consumer: &Words<AtomicU32>, mark: u32) -> bool {
    let consumed = consumer[0].load(Acquire);
    consumed.wrapping_sub(mark).cast_signed() >= 0
}

/// The receive ring: descriptors of received packets.
pub(crate) struct Received {
    ring: SharedRing,
    /// Consumer index; only this side writes it.
    next: u32,
}

/// One piece of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingPiece {
    /// Offset of the first byte in the UMEM.
    pub(crate) address: u64,
    pub(crate) length: u32,
    /// Whether the packet continues in the next piece.
    pub(crate) goes_on: bool,
}

/// Start of a packet, from a descriptor with separate cell and offset (unaligned cells).
#[inline]
fn whole(address: u64) -> u64 {
    (address & XSK_UNALIGNED_BUF_ADDR_MASK) + (address >> XSK_UNALIGNED_BUF_OFFSET_SHIFT)
}

impl Received {
    pub(crate) fn map(
        socket: impl AsFd,
        page: u64,
        places: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let ring = SharedRing::map(socket, page, places, size, DESCRIPTOR_WORDS)?;
        Ok(Received { ring, next: 0 })
    }

    /// Number of pieces in the ring.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        // Pairs with the kernel's release store: the counted descriptors are complete.
        let produced = self.ring.producer[0].load(Acquire);
        produced.wrapping_sub(self.next).min(self.ring.size)
    }

    /// The piece `ahead` entries after the oldest one.
    #[inline]
    pub(crate) fn peek(&self, ahead: u32) -> RingPiece {
        let at = self
            .ring
            .place(self.next.wrapping_add(ahead), DESCRIPTOR_WORDS);
        let address = whole(self.ring.entries[at].load(Relaxed));
        let bytes = self.ring.entries[at + 1].load(Relaxed).to_ne_bytes();
        let [a, b, c, d, options @ ..] = bytes;
        let options = u32::from_ne_bytes(options);
        RingPiece {
            address,
            length: u32::from_ne_bytes([a, b, c, d]),
            goes_on: options & XdpDescOptions::XDP_PKT_CONTD.bits() != 0,
        }
    }

    /// Returns the first `count` entries to the kernel.
    #[inline]
    pub(crate) fn release(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        // Pairs with the kernel's acquire load: our reads precede its next writes.
        self.ring.consumer[0].store(self.next, Release);
    }

    /// Gives another thread access to the ring's progress.
    pub(crate) fn watch(&self) -> RingWatch {
        RingWatch {
            producer: self.ring.producer.clone(),
            consumer: self.ring.consumer.clone(),
        }
    }
}

/// Progress of a ring, for threads that wait for it.
pub(crate) struct RingWatch {
    producer: Words<AtomicU32>,
    consumer: Words<AtomicU32>,
}

impl RingWatch {
    /// Number of entries produced so far.
    pub(crate) fn produced(&self) -> u32 {
        self.producer[0].load(Acquire)
    }

    /// Whether the entries before `mark` are consumed.
    pub(crate) fn has_passed(&self, mark: u32) -> bool {
        has_passed(&self.consumer, mark)
    }
}

/// The fill ring: cells for the kernel to fill.
pub(crate) struct Fill {
    ring: SharedRing,
    /// Producer index; only this side writes it.
    next: u32,
}

impl Fill {
    pub(crate) fn map(
        socket: impl AsFd,
        page: u64,
        places: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let ring = SharedRing::map(socket, page, places, size, 1)?;
        Ok(Fill { ring, next: 0 })
    }

    /// Number of entries that can be produced now.
    pub(crate) fn room(&self) -> u32 {
        self.ring.room(self.next)
    }

    /// Pushes these addresses; the caller has checked that there is room.
    pub(crate) fn push(&mut self, addresses: impl Iterator<Item = u64>) {
        for address in addresses {
            let at = self.ring.place(self.next, 1);
            self.ring.entries[at].store(address, Relaxed);
            self.next = self.next.wrapping_add(1);
        }
        // Pairs with the kernel's acquire load of the producer's index.
        self.ring.producer[0].store(self.next, Release);
    }

    /// Whether the kernel needs a wake-up call for new entries.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}
