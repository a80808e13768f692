// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of each chunk: its lane, and the readers that lease it.

use std::collections::VecDeque;

use super::reader_set::ReaderSet;
use crate::ids::ChunkId;
use crate::number::to_usize;

/// What a lease counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseKind {
    /// The reader's guarantee.
    Guarantee,
    /// The shared half.
    Shared,
}

#[derive(Clone, Default)]
struct ChunkRecord {
    in_use: bool,
    sealed: bool,
    lane: usize,
    /// Number of times that the chunk was opened; distinguishes leases of different uses.
    opening: u32,
    leases: ReaderSet,
    /// Leases beyond their reader's guarantee.
    shared: ReaderSet,
}

impl ChunkRecord {
    /// Whether a lease that is about to be added, or was just removed, is the only one beyond a
    /// guarantee: of the chunk, and of the owner on the chunk.
    fn only_use(&self, kind: LeaseKind, peers: &ReaderSet) -> SharedUse {
        SharedUse {
            of_lane: kind == LeaseKind::Shared && self.shared.is_empty(),
            of_owner: kind == LeaseKind::Shared && !self.shared.has_any_of(peers),
        }
    }
}

/// A lease that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// What the lease counted against.
    pub(super) kind: LeaseKind,
    /// It was the last lease beyond a guarantee: of the chunk, and of the owner on the chunk.
    pub(super) frees: SharedUse,
}

/// Whether a lease beyond a guarantee is the first or last one of its chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SharedUse {
    /// No other reader has the chunk beyond its guarantee.
    pub(super) of_lane: bool,
    /// No other reader of the same owner has the chunk beyond its guarantee.
    pub(super) of_owner: bool,
}

/// A lease in a reader's list; stays there until the list is cleaned up.
#[derive(Clone, Copy)]
struct Listed {
    id: ChunkId,
    opening: u32,
}

/// Leases of one reader on one lane, oldest first; may include ended ones.
#[derive(Default)]
struct List {
    leases: VecDeque<Listed>,
    held: usize,
}

/// State of each chunk, and the chunks that each reader holds.
///
/// Invariants
/// - A reader's list of a lane has every held chunk once, in the order in which the chunks were
///   opened.
/// - A list is at most a constant longer than twice the held chunks, so that each step takes a
///   constant time on average.
pub(super) struct Chunks {
    records: Vec<ChunkRecord>,
    /// One list per lane, for each reader.
    lists: Vec<Vec<List>>,
    lanes: usize,
}

/// Number of ended leases in a list that triggers a cleanup.
const MAX_ENDED: usize = 16;

impl Chunks {
    pub(super) fn new(count: u32, lanes: usize) -> Self {
        Chunks {
            records: vec![ChunkRecord::default(); to_usize(count)],
            lists: Vec::new(),
            lanes,
        }
    }

    /// Marks a chunk as opened by a lane; `false` if it was in use.
    pub(super) fn take(&mut self, id: ChunkId, lane: usize) -> bool {
        let record = &mut self.records[id.index()];
        if record.in_use {
            return false;
        }
        record.in_use = true;
        record.sealed = false;
        record.lane = lane;
        record.opening = record.opening.wrapping_add(1);
        true
    }

    pub(super) fn lane(&self, id: ChunkId) -> usize {
        self.records[id.index()].lane
    }

    /// Whether a reader leases a chunk.
    pub(super) fn is_leased_to(&self, id: ChunkId, reader: usize) -> bool {
        let record = self.records.get(id.index());
        record.is_some_and(|record| record.leases.has(reader))
    }

    /// Whether one of these readers has a chunk beyond its guarantee.
    pub(super) fn is_shared_by(&self, id: ChunkId, readers: &ReaderSet) -> bool {
        self.records[id.index()].shared.has_any_of(readers)
    }

    /// Leases the newest chunk of a lane to a reader, one of its owner's `peers`.
    pub(super) fn lease(
        &mut self,
        id: ChunkId,
        reader: usize,
        kind: LeaseKind,
        peers: &ReaderSet,
    ) -> SharedUse {
        let record = &mut self.records[id.index()];
        record.leases.add(reader);
        let takes = record.only_use(kind, peers);
        if kind == LeaseKind::Shared {
            record.shared.add(reader);
        }
        let (lane, opening) = (record.lane, record.opening);
        while self.lists.len() <= reader {
            let lists = (0..self.lanes).map(|_| List::default());
            self.lists.push(lists.collect());
        }
        let list = &mut self.lists[reader][lane];
        list.leases.push_back(Listed { id, opening });
        list.held += 1;
        takes
    }

    /// Ends a lease of a reader, one of its owner's `peers`; `None` if there was none.
    pub(super) fn end_lease(
        &mut self,
        id: ChunkId,
        reader: usize,
        peers: &ReaderSet,
    ) -> Option<Ended> {
        let record = self.records.get_mut(id.index())?;
        if !record.leases.remove(reader) {
            return None;
        }
        let kind = if record.shared.remove(reader) {
            LeaseKind::Shared
        } else {
            LeaseKind::Guarantee
        };
        let ended = Ended {
            kind,
            frees: record.only_use(kind, peers),
        };
        let lane = record.lane;
        let List { leases, held } = &mut self.lists[reader][lane];
        *held -= 1;
        let records = &self.records;
        let lasts = |lease: &Listed| is_held(records, lease, reader);
        while leases.front().is_some_and(|lease| !lasts(lease)) {
            leases.pop_front();
        }
        if leases.len() > 2 * *held + MAX_ENDED {
            leases.retain(lasts);
        }
        Some(ended)
    }

    /// All chunks that a reader holds.
    pub(super) fn all_leased_to(&self, reader: usize) -> Vec<ChunkId> {
        let lanes = 0..self.lanes;
        lanes
            .flat_map(|lane| self.leased_to(reader, lane))
            .collect()
    }

    /// Chunks of a lane that a reader holds, oldest first.
    pub(super) fn leased_to(
        &self,
        reader: usize,
        lane: usize,
    ) -> impl DoubleEndedIterator<Item = ChunkId> + '_ {
        let lists = self.lists.get(reader).and_then(|lists| lists.get(lane));
        let listed = lists.into_iter().flat_map(|list| &list.leases);
        let held = listed.filter(move |lease| is_held(&self.records, lease, reader));
        held.map(|lease| lease.id)
    }

    /// Marks a chunk as sealed.
    pub(super) fn seal(&mut self, id: ChunkId) {
        self.records[id.index()].sealed = true;
    }

    /// Frees a chunk that is sealed and not leased; returns whether it did.
    pub(super) fn free_if_done(&mut self, id: ChunkId) -> bool {
        let record = &mut self.records[id.index()];
        let done = record.in_use && record.sealed && record.leases.is_empty();
        if done {
            record.in_use = false;
        }
        done
    }
}

/// Whether a listed lease is still held.
fn is_held(records: &[ChunkRecord], lease: &Listed, reader: usize) -> bool {
    let record = &records[lease.id.index()];
    record.opening == lease.opening && record.leases.has(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(chunks: &Chunks, reader: usize, lane: usize) -> Vec<u32> {
        chunks.leased_to(reader, lane).map(|id| id.0).collect()
    }

    #[test]
    fn chunks_that_are_held_are_listed_by_lane_in_the_order_of_their_opening() {
        let mut chunks = Chunks::new(9, 2);
        for (id, lane) in [(5, 0), (2, 1), (7, 0), (3, 0)] {
            assert!(chunks.take(ChunkId(id), lane));
            chunks.lease(ChunkId(id), 1, LeaseKind::Guarantee, &ReaderSet::default());
        }
        assert_eq!(held(&chunks, 1, 0), [5, 7, 3]);
        assert_eq!(
            (held(&chunks, 1, 1), held(&chunks, 0, 0)),
            (vec![2], vec![])
        );
        assert!(
            chunks
                .end_lease(ChunkId(7), 1, &ReaderSet::default())
                .is_some()
        );
        assert_eq!(chunks.end_lease(ChunkId(7), 1, &ReaderSet::default()), None);
        assert_eq!(held(&chunks, 1, 0), [5, 3]);
        assert_eq!(chunks.all_leased_to(1), [5, 3, 2].map(ChunkId));
    }

    #[test]
    fn a_chunk_that_is_leased_again_is_listed_once_and_last() {
        let mut chunks = Chunks::new(9, 1);
        for id in [1, 2, 3] {
            assert!(chunks.take(ChunkId(id), 0));
            chunks.lease(ChunkId(id), 0, LeaseKind::Guarantee, &ReaderSet::default());
        }
        assert!(
            chunks
                .end_lease(ChunkId(2), 0, &ReaderSet::default())
                .is_some()
        );
        chunks.seal(ChunkId(2));
        assert!(chunks.free_if_done(ChunkId(2)) && chunks.take(ChunkId(2), 0));
        chunks.lease(ChunkId(2), 0, LeaseKind::Guarantee, &ReaderSet::default());
        assert_eq!(held(&chunks, 0, 0), [1, 3, 2]);
    }

    fn peers(readers: &[usize]) -> ReaderSet {
        let mut set = ReaderSet::default();
        readers.iter().for_each(|reader| set.add(*reader));
        set
    }

    #[test]
    fn a_chunk_is_shared_from_the_first_to_the_last_lease_beyond_a_guarantee() {
        let mut chunks = Chunks::new(9, 1);
        let id = ChunkId(1);
        assert!(chunks.take(id, 0));
        // Readers 1 and 2 have one owner, reader 3 another.
        let owners = [peers(&[0]), peers(&[1, 2]), peers(&[1, 2]), peers(&[3])];
        let kinds = [
            LeaseKind::Guarantee,
            LeaseKind::Shared,
            LeaseKind::Shared,
            LeaseKind::Shared,
        ];
        let leased: Vec<_> = (0..4)
            .map(|at| chunks.lease(id, at, kinds[at], &owners[at]))
            .map(|takes| (takes.of_lane, takes.of_owner))
            .collect();
        let first = [(false, false), (true, true), (false, false), (false, true)];
        assert_eq!(leased, first);
        assert!(chunks.is_shared_by(id, &owners[1]) && !chunks.is_shared_by(id, &owners[0]));
        let ended = [1, 0, 2, 3].map(|reader| chunks.end_lease(id, reader, &owners[reader]));
        let ended =
            ended.map(|one| one.map(|one| (one.kind, one.frees.of_lane, one.frees.of_owner)));
        let expected = [
            (LeaseKind::Shared, false, false),
            (LeaseKind::Guarantee, false, false),
            (LeaseKind::Shared, false, true),
            (LeaseKind::Shared, true, true),
        ];
        assert_eq!(ended, expected.map(Some));
    }

    #[test]
    fn a_list_stays_short_while_one_chunk_is_held_for_long() {
        let mut chunks = Chunks::new(4, 1);
        assert!(chunks.take(ChunkId(1), 0));
        chunks.lease(ChunkId(1), 0, LeaseKind::Guarantee, &ReaderSet::default());
        for _ in 0..1000 {
            assert!(chunks.take(ChunkId(2), 0));
            chunks.lease(ChunkId(2), 0, LeaseKind::Guarantee, &ReaderSet::default());
            assert!(
                chunks
                    .end_lease(ChunkId(2), 0, &ReaderSet::default())
                    .is_some()
            );
            chunks.seal(ChunkId(2));
            assert!(chunks.free_if_done(ChunkId(2)));
        }
        assert_eq!(held(&chunks, 0, 0), [1]);
        assert!(chunks.lists[0][0].leases.len() <= 2 + MAX_ENDED);
    }
}
