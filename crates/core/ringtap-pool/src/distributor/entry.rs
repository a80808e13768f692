// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distributor's state of one reader: queues, credit and losses.

use super::budget::{LaneBudget, Room, reserve};
use super::chunks::LeaseKind;
use super::missed::{Missing, Why};
use super::options::ReaderOptions;
use super::resting::Rest;
use crate::control::ControlRegion;
use crate::ids::{ChunkId, LaneId};
use crate::number::to_u32;
use crate::policy::Policy;
use crate::queue::{Consumer, Producer};
use crate::reader::DeliveryEntry;
use crate::sync::Ordering::Relaxed;

/// State of one reader on one lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) credit: u32,
    /// Chunks that the reader can always hold.
    pub(super) guarantee: u32,
    /// Number of held chunks, and of those beyond the guarantee.
    pub(super) held: u32,
    shared_held: u32,
    /// All missed packets until the reader came to rest, if it rests.
    pub(super) missed: Missing,
    /// Missed packets that no delivery has reported.
    unreported: Missing,
    /// Number of chunks opened while the reader was sampled.
    turn: u32,
    /// Number of chunks that the reader got in one burst, and the burst's number.
    in_burst: (u32, u64),
    /// The reader rests on the lane.
    pub(super) rest: Option<Rest>,
    /// Sequence number after the reader's last packet in sealed chunks.
    sealed_to: u64,
    /// The reader's first sequence in the open chunk, if the reader leases that chunk.
    fills_from: Option<u64>,
}

impl Account {
    /// Counts a further lease.
    fn hold(&mut self, kind: LeaseKind) {
        self.held += 1;
        self.shared_held += u32::from(kind == LeaseKind::Shared);
    }

    /// Counts a chunk that the reader gets in this burst.
    pub(super) fn note_burst(&mut self, burst: u64) {
        let before = if self.in_burst.1 == burst {
            self.in_burst.0
        } else {
            0
        };
        self.in_burst = (before + 1, burst);
    }

    /// Why the reader does not get another chunk in this burst: at least half of what it holds came in
    /// the same burst, or it did not keep up.
    pub(super) fn why_past_credit(&self, burst: u64) -> Why {
        let (count, of) = self.in_burst;
        if of == burst && u64::from(count) * 2 >= u64::from(self.held) {
            Why::Burst
        } else {
            Why::Credit
        }
    }

    /// Counts the end of a lease.
    pub(super) fn release(&mut self, kind: LeaseKind) {
        self.held -= 1;
        self.shared_held -= u32::from(kind == LeaseKind::Shared);
    }

    /// Notes a lease on the chunk that is being filled, from this sequence on.
    pub(super) fn begins(&mut self, sequence: u64) {
        self.fills_from = Some(sequence);
    }

    /// Records that the chunk being filled is sealed, and ends here.
    pub(super) fn seal(&mut self, end: u64) {
        self.sealed_to = self.ends(end);
        self.fills_from = None;
    }

    /// End of the reader's packets if the lane's packets end at `now`.
    pub(super) fn ends(&self, now: u64) -> u64 {
        match self.fills_from {
            Some(from) if now > from => now,
            _ => self.sealed_to,
        }
    }
}

pub(super) struct Entry {
    deliveries: Producer,
    returns: Consumer,
    pub(super) control: ControlRegion,
    pub(super) policy: Policy,
    pub(super) mask: u64,
    pub(super) group: u64,
    pub(super) lanes: Vec<Account>,
    /// Index of the reader's owner.
    pub(super) owner: usize,
    /// The reader gets only the chunks for which the scheduler of its chunk share chooses it.
    pub(super) is_in_share: bool,
    pub(super) corrupt: bool,
    /// Whether the reader has not learned yet that no more chunks follow.
    pub(super) unreported_end: bool,
}

impl Entry {
    /// The state of a new reader of lanes with these credits.
    pub(super) fn new(
        options: &ReaderOptions,
        owner: usize,
        credits: &[u32],
        control: ControlRegion,
    ) -> Self {
        let account = |(credit, start): (&u32, u64)| Account {
            credit: *credit,
            sealed_to: start,
            ..Account::default()
        };
        let accounts = credits.iter().zip(control.starts()).map(account);
        Entry {
            deliveries: Producer::new(control.deliveries.clone()),
            returns: Consumer::new(control.returns.clone()),
            policy: options.policy,
            mask: options.mask,
            group: options.group,
            lanes: accounts.collect(),
            owner,
            is_in_share: options.chunk_share.is_some(),
            corrupt: false,
            unreported_end: false,
            control,
        }
    }

    /// Number of held chunks of all lanes.
    pub(super) fn load(&self) -> u32 {
        self.lanes.iter().map(|account| account.held).sum()
    }

    /// What a lease of another chunk of a lane counts against; `None` if the reader may not hold it. With
    /// `may_share`, it may take one from the shared half.
    pub(super) fn lease_kind(&self, lane: usize, may_share: bool) -> Option<LeaseKind> {
        let account = &self.lanes[lane];
        let of_guarantee = account.held - account.shared_held;
        if account.held >= account.credit {
            None
        } else if self.policy == Policy::Block || of_guarantee < account.guarantee {
            Some(LeaseKind::Guarantee)
        } else {
            may_share.then_some(LeaseKind::Shared)
        }
    }

    /// What the lease of the chunk that was just opened counts against, and whether the reader gets
    /// only the first bytes of each packet; `None` if it does not get the chunk.
    pub(super) fn terms(&mut self, lane: usize, room: Room) -> Option<(LeaseKind, bool)> {
        let kind = self.lease_kind(lane, room.may_share)?;
        let account = &mut self.lanes[lane];
        let limit = account
            .guarantee
            .saturating_add(room.threshold)
            .min(account.credit);
        let strained = account.held * 2 >= limit;
        match self.policy {
            Policy::Sample { one_in } if strained => {
                account.turn = account.turn.wrapping_add(1);
                let is_due = account.turn.is_multiple_of(one_in.max(1));
                is_due.then_some((kind, false))
            }
            Policy::Cut { .. } => Some((kind, strained)),
            _ => Some((kind, false)),
        }
    }

    /// Delivers a chunk after a report of missed packets; returns `false` if the queue is corrupt.
    pub(super) fn deliver(
        &mut self,
        lane: usize,
        chunk: ChunkId,
        from: u32,
        cut: bool,
        kind: LeaseKind,
    ) -> bool {
        let reported = self.report_missed(lane);
        // The queue has room for every chunk of the pool: only a corrupt reader causes a failure.
        let delivery = DeliveryEntry::Chunk { chunk, from, cut };
        if !reported || self.deliveries.push(delivery.to_entry()).is_err() {
            self.corrupt = true;
            return false;
        }
        self.lanes[lane].hold(kind);
        true
    }

    /// Reports missed packets to the reader; returns `false` if its queue is corrupt.
    fn report_missed(&mut self, lane: usize) -> bool {
        let missed = std::mem::take(&mut self.lanes[lane].unreported);
        let (lane, packets) = (LaneId::at(lane), missed.packets);
        let lost = (packets > 0).then_some(DeliveryEntry::Lost { lane, packets });
        let packets = missed.other_members;
        let others = (packets > 0).then_some(DeliveryEntry::OtherMembers { lane, packets });
        let mut reports = lost.into_iter().chain(others);
        reports.all(|report| self.deliveries.push(report.to_entry()).is_ok())
    }

    /// Adds missed packets of a lane.
    pub(super) fn miss(&mut self, lane: usize, missing: Missing) {
        self.lanes[lane].missed += missing;
        self.lanes[lane].unreported += missing;
    }

    /// Whether the reader has packets left to take, if `positions` are the sequence numbers of the
    /// lanes' next packets; the end counts once.
    pub(super) fn has_news(&mut self, positions: &[u64]) -> bool {
        let ends = self.lanes.iter().zip(positions);
        let ends = ends.fold(0, |sum: u64, (lane, now)| sum.wrapping_add(lane.ends(*now)));
        ends != self.control.reader().read_to.load(Relaxed)
            || std::mem::take(&mut self.unreported_end)
    }

    /// Index of the next chunk that the reader returns.
    pub(super) fn next_return(&self) -> u32 {
        self.returns.head()
    }

    /// The next chunk that the reader returned.
    pub(super) fn returned(&mut self) -> Option<ChunkId> {
        if self.corrupt {
            return None;
        }
        match self.returns.pop() {
            Ok(entry) => entry.map(|entry| ChunkId(to_u32(entry))),
            Err(_) => {
                self.corrupt = true;
                None
            }
        }
    }
}

/// Number of chunks that a reader may hold, of a lane with `chunks` chunks.
pub(super) fn credit(wanted: Option<u32>, policy: Policy, chunks: u32, budget: &LaneBudget) -> u32 {
    let (usual, most) = match policy {
        Policy::Block => (chunks, u32::MAX),
        _ => (chunks - reserve(chunks), budget.max_for_one()),
    };
    wanted.unwrap_or(usual).min(most).clamp(1, chunks.max(1))
}
