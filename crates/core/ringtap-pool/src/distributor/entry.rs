// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distributor's state of one reader: queues, credit and losses.
#![forbid(unsafe_code)]

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::control::Control;
use crate::ids::{ChunkId, LaneId};
use crate::number::to_u32;
use crate::queue::{Consumer, Producer};
use crate::reader::{Delivery, MOST_MISSED, MissedPackets};
use crate::sync::Ordering::Relaxed;

/// Maximum number of a lane's chunks that one reader's default credit leaves to the others.
pub(super) const RESERVE: u32 = 64;

/// What happens to packets for a reader past its credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The reader loses the newest packets; other readers lose nothing.
    #[default]
    DropNewest,
    /// Above half its credit the reader gets one chunk in `one_in`; past it, none.
    Sample {
        /// One chunk of this many is delivered; at least 1.
        one_in: u32,
    },
    /// Above half its credit the reader gets the first `snap_bytes` bytes of each packet; past it, none.
    Cut {
        /// Number of bytes left of a packet.
        snap_bytes: u32,
    },
    /// The source waits. Only for sources that can wait: files and simulated ones.
    Block,
}

/// Options of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderOptions {
    /// Maximum number of chunks of one lane that the reader holds; by default all but a reserve for the
    /// others, or all if the source can wait.
    pub credit: Option<u32>,
    /// What happens past the credit.
    pub policy: Policy,
    /// Mask bits of the reader: it wants packets that have one of them.
    pub mask: u64,
    /// Mask bits that every packet of the reader's balanced group has, for any member; 0 without
    /// such a group.
    pub group: u64,
    /// Number of its chunk share: of the readers with one number, one gets each chunk. A reader
    /// without a share gets every chunk.
    pub chunk_share: Option<u32>,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        ReaderOptions {
            credit: None,
            policy: Policy::default(),
            mask: u64::MAX,
            group: 0,
            chunk_share: None,
        }
    }
}

/// Packets of a lane in chunks that a reader did not get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// All packets, wanted or not.
    pub sequences: u64,
    /// Packets that the reader wanted and lost, because it was past its credit.
    pub packets: u64,
    /// Packets for other members of the reader's group.
    pub other_members: u64,
}

impl AddAssign for Missing {
    fn add_assign(&mut self, more: Self) {
        self.sequences += more.sequences;
        self.packets += more.packets;
        self.other_members += more.other_members;
    }
}

/// State of one reader on one lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) credit: u32,
    /// Number of held chunks.
    pub(super) held: u32,
    /// All missed packets.
    pub(super) missed: Missing,
    /// Missed packets that no delivery has reported.
    unreported: Missing,
    /// Number of chunks opened while the reader was sampled.
    turn: u32,
    /// Sequence number after the reader's last packet in sealed chunks.
    sealed_to: u64,
    /// Its first sequence in the chunk that is being filled, if the reader has a lease on that chunk.
    fills_from: Option<u64>,
}

impl Account {
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

    /// Takes the missed packets that the next delivery reports.
    pub(super) fn take_unreported(&mut self) -> Missing {
        std::mem::take(&mut self.unreported)
    }
}

pub(super) struct Entry {
    deliveries: Producer,
    returns: Consumer,
    pub(super) control: Control,
    pub(super) policy: Policy,
    pub(super) mask: u64,
    pub(super) group: u64,
    pub(super) lanes: Vec<Account>,
    /// It gets only the chunks that its share leaves to it.
    pub(super) is_in_share: bool,
    pub(super) corrupt: bool,
    /// Whether the reader sleeps and must not be woken yet.
    pub(super) deferred: bool,
    /// Whether the reader must still be told that no more chunks follow.
    pub(super) untold_end: bool,
    /// Number of its sleeps when it was last seen awake.
    slept: u32,
}

/// Terms on which a reader gets a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Terms {
    No,
    Whole,
    Cut,
}

impl Entry {
    pub(super) fn new(options: &ReaderOptions, shares: &[u32], control: Control) -> Self {
        let account = |(share, start): (&u32, u64)| Account {
            credit: credit(options, *share),
            sealed_to: start,
            ..Account::default()
        };
        let accounts = shares.iter().zip(control.starts()).map(account);
        Entry {
            deliveries: Producer::new(control.deliveries.clone()),
            returns: Consumer::new(control.returns.clone()),
            policy: options.policy,
            mask: options.mask,
            group: options.group,
            lanes: accounts.collect(),
            is_in_share: options.chunk_share.is_some(),
            corrupt: false,
            deferred: false,
            untold_end: false,
            slept: 0,
            control,
        }
    }

    /// Number of held chunks of all lanes.
    pub(super) fn load(&self) -> u32 {
        self.lanes.iter().map(|account| account.held).sum()
    }

    /// Whether the reader may hold another chunk; `room` is the part that the others leave.
    pub(super) fn has_credit(&self, lane: usize, room: u32) -> bool {
        let account = &self.lanes[lane];
        let limit = match self.policy {
            Policy::Block => account.credit,
            _ => account.credit.min(room),
        };
        account.held < limit
    }

    /// Terms on which the reader gets the chunk that was just opened.
    pub(super) fn terms(&mut self, lane: usize, room: u32) -> Terms {
        if !self.has_credit(lane, room) {
            return Terms::No;
        }
        let account = &mut self.lanes[lane];
        let strained = account.held * 2 >= account.credit;
        match self.policy {
            Policy::Cut { .. } if strained => Terms::Cut,
            Policy::Sample { one_in } if strained => {
                account.turn = account.turn.wrapping_add(1);
                if account.turn.is_multiple_of(one_in.max(1)) {
                    Terms::Whole
                } else {
                    Terms::No
                }
            }
            _ => Terms::Whole,
        }
    }

    /// Delivers a chunk after a report of missed packets; returns `false` if the queue is corrupt.
    pub(super) fn deliver(&mut self, lane: usize, chunk: ChunkId, from: u32, cut: bool) -> bool {
        let missed = self.lanes[lane].take_unreported();
        let reported = self.report(lane, missed);
        // The queue has room for every chunk of the pool: only a corrupt reader causes a failure.
        let delivery = Delivery::Chunk { chunk, from, cut };
        if !reported || self.deliveries.push(delivery.to_entry()).is_err() {
            self.corrupt = true;
            return false;
        }
        self.lanes[lane].held += 1;
        true
    }

    /// Reports missed packets to the reader; returns `false` if its queue is corrupt.
    fn report(&mut self, lane: usize, missed: Missing) -> bool {
        let lane = LaneId::at(lane);
        let reports = [
            (missed.packets, MissedPackets::Lost),
            (missed.other_members, MissedPackets::OtherMembers),
        ];
        reports.into_iter().all(|(packets, which)| {
            let packets = packets.min(MOST_MISSED);
            let report = Delivery::Missed {
                lane,
                packets,
                which,
            };
            packets == 0 || self.deliveries.push(report.to_entry()).is_ok()
        })
    }

    /// Adds missed packets of a lane.
    pub(super) fn miss(&mut self, lane: usize, missing: Missing) {
        self.lanes[lane].missed += missing;
        self.lanes[lane].unreported += missing;
    }

    /// Whether the reader sleeps and may be woken.
    pub(super) fn is_asleep(&self) -> bool {
        !self.deferred && self.control.reader().asleep.is_raised()
    }

    /// Whether the reader sleeps, or slept since this was last `false`.
    pub(super) fn slept_lately(&mut self) -> bool {
        let sleeps = self.control.reader().sleeps.load(Relaxed);
        let lately = sleeps != self.slept && !self.deferred;
        if !self.is_asleep() {
            self.slept = sleeps;
        }
        lately
    }

    /// Whether the reader has packets left to take, if `positions` are the sequence numbers of the
    /// lanes' next packets; the end counts once.
    pub(super) fn has_news(&mut self, positions: &[u64]) -> bool {
        let ends = self.lanes.iter().zip(positions);
        let ends = ends.fold(0, |sum: u64, (lane, now)| sum.wrapping_add(lane.ends(*now)));
        ends != self.control.reader().read_to.load(Relaxed) || std::mem::take(&mut self.untold_end)
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

/// Number of chunks that the reader may hold, of a lane with `share` chunks.
fn credit(options: &ReaderOptions, share: u32) -> u32 {
    let most = match options.policy {
        Policy::Block => share,
        _ => share - reserve(share),
    };
    options.credit.unwrap_or(most).clamp(1, share.max(1))
}

/// Number of chunks that no reader's default credit takes, of a lane with `share` chunks.
pub(super) fn reserve(share: u32) -> u32 {
    (share / 8).clamp(2, RESERVE).min(share.saturating_sub(1))
}

/// Minimum number of a lane's chunks with which several slow readers cannot starve a fast one.
pub(super) fn fewest_chunks(readers: u32) -> u32 {
    match readers {
        0 | 1 => 2,
        _ => scarce(readers).saturating_mul(2),
    }
}

/// Number of free chunks of a lane below which all readers are limited. Half of them suffice for
/// each reader to take the open chunk and the next one, and for one reader to go on.
fn scarce(readers: u32) -> u32 {
    readers.saturating_mul(4).saturating_add(2)
}

/// Number of chunks that one reader may hold while `free` chunks of a lane are free. It falls with
/// `free`, so that several slow readers cannot starve a fast one. (In a lane with less than
/// [`fewest_chunks`] they can.)
pub(super) fn room(share: u32, free: u32, readers: u32) -> u32 {
    let reserve = reserve(share).max(scarce(readers)).min((share / 2).max(1));
    if free >= reserve || readers <= 1 {
        return u32::MAX;
    }
    if free >= reserve / 2 {
        return (reserve / 2).max(1);
    }
    // The open chunk and the next one: less would cut off a reader that keeps up.
    (reserve / (4 * readers)).max(2)
}
