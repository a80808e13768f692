// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that a program took from a capture and keeps, in place or as a copy.

use ringtap::{Batch, Capture, Error, LaneId, Packet, Slot};

/// Bytes of a slot.
const SLOT: usize = 32;

/// Packets that are for this reader: of one batch, or copies. In a child of fork, dropping it releases nothing.
pub struct TakenPackets {
    memory: Memory,
    /// The process that took the packets.
    process: u32,
}

/// Where the packets are.
enum Memory {
    /// In the pool. `places`: those of the reader's packets in the batch; absent if all are its own.
    Lent {
        batch: Batch,
        places: Option<Vec<u32>>,
    },
    Copied(CopiedPackets),
}

/// Packets in memory of their own.
///
/// # Examples
///
/// ```
/// use ringtap::{LaneId, Slot};
/// use ringtap_columns::{CopiedPackets, TakenPackets};
///
/// let mut copied = CopiedPackets::default();
/// copied.push(LaneId(3), Slot { captured_length: 4, ..Slot::default() }, 0, b"data");
/// let taken = TakenPackets::from(copied);
/// assert_eq!(taken.lane(0), Some(LaneId(3)));
/// assert_eq!(taken.packet(0).map(|packet| packet.data), Some(&b"data"[..]));
/// ```
#[derive(Default)]
pub struct CopiedPackets {
    slots: Vec<u8>,
    places: Vec<CopiedPlace>,
    data: Vec<u8>,
}

/// Lane and sequence of a copied packet, and the end of its bytes.
struct CopiedPlace {
    lane: LaneId,
    sequence: u64,
    end: usize,
}

impl TakenPackets {
    /// Takes all packets of a batch that pass the capture's filter, and counts them as delivered. They lie in the pool
    /// until the value is dropped, and count against the reader's credit until then.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringtap_columns::TakenPackets;
    ///
    /// let mut capture = ringtap::open("sim:max?burst=10")?;
    /// let mut kept = Vec::new();
    /// while let ringtap::Next::Batch(batch) = capture.next(None)? {
    ///     kept.push(TakenPackets::take(&mut capture, batch)?);
    /// }
    /// assert_eq!(kept.iter().map(TakenPackets::len).sum::<usize>(), 10);
    /// # Ok::<(), ringtap::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Receive`].
    pub fn take(capture: &mut Capture, batch: Batch) -> Result<Self, Error> {
        let first = batch.first_sequence();
        let (mut places, mut count) = (None, 0_u32);
        for packet in capture.packets(&batch) {
            let packet = packet.map_err(|error| *error)?;
            let place = u32::try_from(packet.sequence.wrapping_sub(first)).unwrap_or(u32::MAX);
            if place != count && places.is_none() {
                places = Some((0..count).collect::<Vec<_>>());
            }
            if let Some(places) = &mut places {
                places.push(place);
            }
            count += 1;
        }
        // Those of other readers may also be the last ones.
        if places.is_none() && count as usize != batch.len() {
            places = Some((0..count).collect());
        }
        Ok(TakenPackets {
            memory: Memory::Lent { batch, places },
            process: std::process::id(),
        })
    }

    /// A copy in memory of its own, which counts against no credit.
    #[must_use]
    pub fn copy(&self) -> Self {
        let mut copied = CopiedPackets {
            slots: Vec::with_capacity(self.len() * SLOT),
            places: Vec::with_capacity(self.len()),
            data: Vec::with_capacity(self.packets().map(|(_, packet)| packet.data.len()).sum()),
        };
        for (lane, packet) in self.packets() {
            copied.push(lane, packet.slot(), packet.sequence, packet.data);
        }
        TakenPackets {
            memory: Memory::Copied(copied),
            process: self.process,
        }
    }

    /// The lane of the packet at this index, counted over all sources.
    #[must_use]
    pub fn lane(&self, index: usize) -> Option<LaneId> {
        match &self.memory {
            Memory::Lent { batch, .. } => (index < self.len()).then(|| batch.lane()),
            Memory::Copied(copied) => copied.places.get(index).map(|place| place.lane),
        }
    }

    /// Number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.memory {
            Memory::Lent { batch, places } => places.as_ref().map_or(batch.len(), Vec::len),
            Memory::Copied(copied) => copied.len(),
        }
    }

    /// Whether all packets of the batch were for other readers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The packet at this index.
    #[must_use]
    #[inline]
    pub fn packet(&self, index: usize) -> Option<Packet<'_>> {
        match &self.memory {
            Memory::Lent { batch, places } => batch.packet(match places {
                Some(places) => *places.get(index)? as usize,
                None => index,
            }),
            Memory::Copied(copied) => copied.packet(index),
        }
    }

    /// The packets with their lanes, in the order of capture.
    pub fn packets(&self) -> impl Iterator<Item = (LaneId, Packet<'_>)> {
        (0..self.len()).map_while(|index| Some((self.lane(index)?, self.packet(index)?)))
    }

    /// All packets that lie together in memory, and whether each is for this reader.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Packet<'_>, bool)> {
        let (count, places) = match &self.memory {
            Memory::Lent { batch, places } => (batch.len(), places.as_deref()),
            Memory::Copied(copied) => (copied.len(), None),
        };
        let mut own = places.unwrap_or_default().iter().peekable();
        (0..count).map_while(move |place| {
            let is_own = |own: &&u32| **own as usize == place;
            let is_ours = places.is_none() || own.next_if(is_own).is_some();
            let packet = match &self.memory {
                Memory::Lent { batch, .. } => batch.packet(place),
                Memory::Copied(copied) => copied.packet(place),
            };
            Some((packet?, is_ours))
        })
    }

    /// The slots in memory, 32 bytes each; `None` if packets of other readers lie between them.
    #[must_use]
    pub fn slots(&self) -> Option<&[u8]> {
        match &self.memory {
            Memory::Lent { batch, places } => places.is_none().then(|| batch.slots()),
            Memory::Copied(copied) => Some(&copied.slots),
        }
    }

    /// Appends the slots, 32 bytes each.
    pub fn copy_slots(&self, to: &mut Vec<u8>) {
        if let Some(slots) = self.slots() {
            to.extend_from_slice(slots);
        } else if let Memory::Lent { batch, places } = &self.memory {
            let slots = batch.slots().as_chunks::<SLOT>().0;
            let own = places.iter().flatten();
            let own = own.filter_map(|place| slots.get(*place as usize));
            own.for_each(|slot| to.extend_from_slice(slot));
        }
    }
}

impl Drop for TakenPackets {
    fn drop(&mut self) {
        // The pool is shared: a child would release chunks that its parent still reads.
        if self.process != std::process::id() {
            let nothing = Memory::Copied(CopiedPackets::default());
            std::mem::forget(std::mem::replace(&mut self.memory, nothing));
        }
    }
}

impl From<CopiedPackets> for TakenPackets {
    fn from(copied: CopiedPackets) -> Self {
        TakenPackets {
            memory: Memory::Copied(copied),
            process: std::process::id(),
        }
    }
}

impl CopiedPackets {
    /// Appends a packet of this lane; `slot` has its time and lengths.
    pub fn push(&mut self, lane: LaneId, slot: Slot, sequence: u64, data: &[u8]) {
        for word in slot.to_words() {
            self.slots.extend_from_slice(&word.to_ne_bytes());
        }
        self.data.extend_from_slice(data);
        self.places.push(CopiedPlace {
            lane,
            sequence,
            end: self.data.len(),
        });
    }

    /// Number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of all packets.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    fn packet(&self, index: usize) -> Option<Packet<'_>> {
        let place = self.places.get(index)?;
        let before = index.checked_sub(1).and_then(|at| self.places.get(at));
        let start = before.map_or(0, |before| before.end);
        let slot = self.slots.as_chunks::<SLOT>().0.get(index)?;
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(slot.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let data = self.data.get(start..place.end)?;
        Some(Packet::copied(words, place.sequence, data))
    }
}
