// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes back chunks that readers returned, and recycles those that no reader leases.

use super::Distributor;
use crate::ids::ChunkId;
use crate::number::to_usize;

impl Distributor {
    /// Takes chunks that readers returned.
    pub(super) fn take_back(&mut self) -> bool {
        let mut returned = std::mem::take(&mut self.returned);
        self.signs.look();
        for reader in self.signs.returning.iter() {
            let Some(entry) = self.readers[reader].as_mut() else {
                continue;
            };
            // Reads one entry more than the reader holds, to detect a reader that returns too many.
            let most = to_usize(entry.load()) + 1;
            let given_back = std::iter::from_fn(|| entry.returned());
            returned.extend(given_back.take(most).map(|id| (reader, id)));
            self.signs.has_returned(reader, entry.next_return());
        }
        // The order of returns is unknown: the scheduler learns of all before a lease ends.
        for &(reader, id) in &returned {
            self.report_return(id, reader);
        }
        let moved = !returned.is_empty();
        for (reader, id) in returned.drain(..) {
            self.end_lease(reader, id);
        }
        self.returned = returned;
        moved
    }

    fn end_lease(&mut self, reader: usize, id: ChunkId) {
        let Some(entry) = self.readers[reader].as_mut().filter(|entry| !entry.corrupt) else {
            return;
        };
        if !self.chunks.is_leased_to(id, reader) {
            entry.corrupt = true;
            for lane in 0..self.lanes.len() {
                self.attend(lane, reader);
            }
            return;
        }
        let owner = entry.owner;
        self.return_chunk(id, reader, owner);
    }

    /// Ends a lease; recycles the chunk if it was the last one.
    pub(super) fn return_chunk(&mut self, id: ChunkId, reader: usize, owner: usize) {
        let peers = &self.owners.get(owner).readers;
        let Some(ended) = self.chunks.end_lease(id, reader, peers) else {
            return;
        };
        let lane = self.chunks.lane(id);
        if let Some(entry) = self.readers[reader].as_mut() {
            entry.lanes[lane].release(ended.kind);
        }
        self.lanes[lane].budget.free_shared(ended.frees);
        self.owners.frees(owner, lane, ended.frees);
        self.has_returned(lane, reader);
        self.recycle_if_done(id);
    }

    pub(super) fn recycle_if_done(&mut self, id: ChunkId) {
        if !self.chunks.free_if_done(id) {
            return;
        }
        let lane = &mut self.lanes[self.chunks.lane(id)];
        lane.in_use -= 1;
        // The queue has room for every chunk; a corrupt writer loses only its own chunks.
        let _lost = lane.ends.recycle.push(u64::from(id.0));
    }
}
