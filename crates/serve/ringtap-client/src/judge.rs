// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which packets of a pool are a reader's own.
#![forbid(unsafe_code)]

use ringtap_filter::{Place, Program};
use ringtap_ipc::subscription::Wanted;
use ringtap_pool::ids::LaneId;
use ringtap_pool::reader::{self, Gap, Packet, RecvError};

/// How one endpoint's packets are told from those of others.
pub(crate) struct Judge {
    mask: u64,
    /// Runs for every packet; else only for those that the source did not judge.
    always: bool,
    filter: Option<Program>,
    from: Vec<u64>,
}

/// Packets of one lane that follow each other, lent out until the next call.
pub struct Batch<'a> {
    pub(crate) inner: reader::Batch<'a>,
    pub(crate) judge: &'a Judge,
    /// Lanes of the endpoints before this one.
    pub(crate) lanes_before: u32,
    /// Every packet is another reader's, so that no slot need be looked at. Found once: the
    /// chunk may get packets for this reader meanwhile, behind those of the batch.
    pub(crate) is_for_others: bool,
}

/// A packet of the pool, and whose it is.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// The packet.
    pub packet: Packet<'a>,
    /// Whether it is this reader's: it passes the filters, and no other member of a balanced
    /// group gets it.
    pub is_ours: bool,
}

/// Iterator over the packets of a [`Batch`].
pub struct Packets<'a> {
    inner: reader::Packets<'a>,
    judge: &'a Judge,
    from: u64,
}

impl Judge {
    pub(crate) fn new(wanted: &Wanted) -> Self {
        let filter = Some(&wanted.filter).filter(|filter| !filter.takes_everything());
        Judge {
            mask: wanted.mask,
            always: wanted.place != Place::Source,
            filter: filter.cloned(),
            from: wanted.from.clone(),
        }
    }

    /// A batch whose packets are judged.
    #[inline]
    pub(crate) fn judged<'a>(&'a self, inner: reader::Batch<'a>, lanes_before: u32) -> Batch<'a> {
        Batch {
            is_for_others: inner.wanted() & self.mask == 0,
            inner,
            judge: self,
            lanes_before,
        }
    }

    /// From which packet of a lane on the source judges for this reader.
    #[inline]
    fn judges_from(&self, lane: usize) -> u64 {
        match self.filter {
            None => 0,
            Some(_) => self.from.get(lane).copied().unwrap_or(0),
        }
    }

    #[inline(always)]
    fn is_ours(&self, packet: &Packet<'_>, from: u64) -> bool {
        if packet.slot().mask & self.mask == 0 {
            return false;
        }
        match &self.filter {
            Some(filter) if self.always || packet.sequence < from => {
                filter.matches(packet.data, packet.slot().wire_length)
            }
            _ => true,
        }
    }
}

impl<'a> Batch<'a> {
    /// The lane, counted over all endpoints.
    pub fn lane(&self) -> LaneId {
        LaneId(self.lanes_before + self.inner.lane().0)
    }

    /// What this reader lost just before this batch.
    pub fn gap(&self) -> Option<Gap> {
        self.inner.gap()
    }

    /// How many packets there are, those of others included.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Whether there is none; never.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// The packets in the order of capture, those of others included; none if all are those of
    /// others, which [`Tally::begin`](crate::Tally::begin) counts.
    pub fn packets(&self) -> Packets<'a> {
        let lane = self.inner.lane().index();
        Packets {
            inner: match self.is_for_others {
                true => self.inner.no_packets(),
                false => self.inner.packets(),
            },
            judge: self.judge,
            from: self.judge.judges_from(lane),
        }
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Judged<'a>, Box<RecvError>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let packet = match self.inner.next()? {
            Ok(packet) => packet,
            Err(error) => return Some(Err(error)),
        };
        let is_ours = self.judge.is_ours(&packet, self.from);
        Some(Ok(Judged { packet, is_ours }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}
