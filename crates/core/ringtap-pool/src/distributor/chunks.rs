// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the distributor knows of each chunk: its lane, who leases it, who misses it.
#![forbid(unsafe_code)]

use super::MAX_READERS;
use crate::ids::{ChunkId, widen};

/// A reader does not get a chunk, from this slot on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missed {
    pub(super) reader: usize,
    pub(super) from: u32,
    pub(super) why: Why,
}

/// Why a reader does not get a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is past its credit.
    Credit,
    /// A buddy of it has the chunk.
    Elsewhere,
}

impl Missed {
    pub(super) fn past_credit(reader: usize, from: u32) -> Self {
        let why = Why::Credit;
        Missed { reader, from, why }
    }

    pub(super) fn elsewhere(reader: usize, from: u32) -> Self {
        let why = Why::Elsewhere;
        Missed { reader, from, why }
    }
}

/// One bit a reader.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Leases([u64; MAX_READERS / 64]);

impl Leases {
    fn add(&mut self, reader: usize) {
        self.0[reader / 64] |= 1 << (reader % 64);
    }

    /// Ends one; `false` if there was none.
    fn end(&mut self, reader: usize) -> bool {
        let word = &mut self.0[reader / 64];
        let bit = 1 << (reader % 64);
        let held = *word & bit != 0;
        *word &= !bit;
        held
    }

    fn has(&self, reader: usize) -> bool {
        self.0[reader / 64] & (1 << (reader % 64)) != 0
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

#[derive(Clone, Default)]
struct Record {
    in_use: bool,
    sealed: bool,
    lane: usize,
    leases: Leases,
    missed: Vec<Missed>,
    /// Buddy groups in which another than the lane's owner got it, a bit each.
    offloaded: u64,
    /// Flows in it, in order, once somebody asked.
    flows: Option<Box<[u32]>>,
}

/// One record a chunk.
pub(super) struct Chunks(Vec<Record>);

impl Chunks {
    pub(super) fn new(count: u32) -> Self {
        Chunks(vec![Record::default(); widen(count)])
    }

    /// Marks a chunk as opened by a lane; `false` if it was in use.
    pub(super) fn take(&mut self, id: ChunkId, lane: usize) -> bool {
        let record = &mut self.0[id.index()];
        if record.in_use {
            return false;
        }
        record.in_use = true;
        record.sealed = false;
        record.lane = lane;
        record.offloaded = 0;
        record.flows = None;
        true
    }

    pub(super) fn lane(&self, id: ChunkId) -> usize {
        self.0[id.index()].lane
    }

    /// Notes, or asks, in which buddy groups another than the owner got it.
    pub(super) fn offloaded(&mut self, id: ChunkId) -> &mut u64 {
        &mut self.0[id.index()].offloaded
    }

    /// Whether a reader leases a chunk.
    pub(super) fn is_leased_to(&self, id: ChunkId, reader: usize) -> bool {
        let record = self.0.get(id.index());
        record.is_some_and(|record| record.leases.has(reader))
    }

    /// The flows of a chunk that is sealed, in order; `find` lists them.
    pub(super) fn flows(&mut self, id: ChunkId, find: impl FnOnce() -> Vec<u32>) -> &[u32] {
        let record = &mut self.0[id.index()];
        record.flows.get_or_insert_with(|| {
            let mut flows = find();
            flows.sort_unstable();
            flows.dedup();
            flows.into()
        })
    }

    pub(super) fn lease(&mut self, id: ChunkId, reader: usize) {
        self.0[id.index()].leases.add(reader);
    }

    /// Ends a lease; `false` if there was none.
    pub(super) fn end_lease(&mut self, id: ChunkId, reader: usize) -> bool {
        let Some(record) = self.0.get_mut(id.index()) else {
            return false;
        };
        record.leases.end(reader)
    }

    /// Ends all leases of a reader and tells of which chunks; what it missed is forgotten.
    pub(super) fn end_leases_of(&mut self, reader: usize) -> Vec<ChunkId> {
        self.forget_missed(reader);
        let mut ended = Vec::new();
        for (id, record) in (0..).zip(&mut self.0) {
            if record.leases.end(reader) {
                ended.push(ChunkId(id));
            }
        }
        ended
    }

    /// Chunks of a lane that a reader holds.
    pub(super) fn leased_to(
        &self,
        reader: usize,
        lane: usize,
    ) -> impl Iterator<Item = ChunkId> + '_ {
        let held = move |record: &Record| record.lane == lane && record.leases.has(reader);
        let records = (0..).zip(&self.0);
        records
            .filter(move |(_, record)| held(record))
            .map(|(id, _)| ChunkId(id))
    }

    pub(super) fn forget_missed(&mut self, reader: usize) {
        for record in &mut self.0 {
            record.missed.retain(|missed| missed.reader != reader);
        }
    }

    pub(super) fn miss(&mut self, id: ChunkId, missed: Missed) {
        self.0[id.index()].missed.push(missed);
    }

    pub(super) fn take_missed(&mut self, id: ChunkId) -> Vec<Missed> {
        std::mem::take(&mut self.0[id.index()].missed)
    }

    /// Marks a chunk as sealed and tells who misses it.
    pub(super) fn seal(&mut self, id: ChunkId) -> Vec<Missed> {
        self.0[id.index()].sealed = true;
        self.take_missed(id)
    }

    /// Frees a chunk that is sealed and that nobody leases; tells whether it did.
    pub(super) fn free_if_done(&mut self, id: ChunkId) -> bool {
        let record = &mut self.0[id.index()];
        let done = record.in_use && record.sealed && record.leases.is_empty();
        if done {
            record.in_use = false;
        }
        done
    }
}
