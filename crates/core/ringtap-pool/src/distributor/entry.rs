// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the distributor knows of one reader: its queues, its credit, its losses.
#![forbid(unsafe_code)]

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::buddies::Buddies;
use crate::control::Control;
use crate::ids::{ChunkId, LaneId};
use crate::number::to_u32;
use crate::queue::{Consumer, Producer};
use crate::reader::{Delivery, MOST_MISSED, MissedPackets};
use crate::sync::Ordering::Relaxed;

/// Chunks of a lane that one reader's default credit leaves to the others, at most.
pub(super) const RESERVE: u32 = 64;

/// What happens when a reader is past its credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The reader loses the newest packets; nobody else notices.
    #[default]
    DropNewest,
    /// From half its credit on the reader gets one chunk in so many; past it, none.
    Sample {
        /// One chunk of so many is kept, at least 1.
        one_in: u32,
    },
    /// From half its credit on the reader gets so many bytes of each packet; past it, none.
    Cut {
        /// Bytes left of a packet.
        snap_bytes: u32,
    },
    /// The source waits. Only for sources that can: files and simulated ones.
    Block,
}

/// How a reader wants to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderOptions {
    /// Chunks of one lane that it may hold; by default all but a reserve for the others, and
    /// really all when the source can wait.
    pub credit: Option<u32>,
    /// What happens past that.
    pub policy: Policy,
    /// Bits of a slot's mask of which one must be set for this reader to want the packet.
    pub mask: u64,
    /// Bits that every packet of the reader's balanced group has, whichever member gets the
    /// packet; 0 without such a group.
    pub group: u64,
    /// Readers with which it shares the lanes' chunks; without them it gets every chunk.
    pub buddies: Option<Buddies>,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        ReaderOptions {
            credit: None,
            policy: Policy::default(),
            mask: u64::MAX,
            group: 0,
            buddies: None,
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

/// What the distributor knows of one reader on one lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) credit: u32,
    /// Chunks that it holds.
    pub(super) held: u32,
    /// All that it missed.
    pub(super) missed: Missing,
    /// The part of it that no delivery has reported.
    unreported: Missing,
    /// Chunks that were opened while it was in need of a sample.
    turn: u32,
    /// Sequence after the last packet for it in sealed chunks.
    sealed_to: u64,
    /// Its first sequence in the chunk that is being filled, if that was lent to it.
    fills_from: Option<u64>,
}

impl Account {
    /// It was lent the chunk that is being filled, from this sequence on.
    pub(super) fn begins(&mut self, sequence: u64) {
        self.fills_from = Some(sequence);
    }

    /// The chunk that was being filled is sealed, and ends here.
    pub(super) fn seal(&mut self, end: u64) {
        self.sealed_to = self.ends(end);
        self.fills_from = None;
    }

    /// Where its packets end if the lane's do here.
    pub(super) fn ends(&self, now: u64) -> u64 {
        match self.fills_from {
            Some(from) if now > from => now,
            _ => self.sealed_to,
        }
    }

    /// Takes what the next delivery reports as missed.
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
    /// Number of its buddy group.
    pub(super) buddies: Option<u32>,
    pub(super) corrupt: bool,
    /// It sleeps and is not to be woken yet.
    pub(super) deferred: bool,
    /// Chunks that it took instead of their lane's owner.
    pub(super) helped_chunks: u64,
    /// It has not been told yet that nothing follows.
    pub(super) untold_end: bool,
    /// How often it had slept when it was last seen awake.
    slept: u32,
}

/// How a chunk may be lent.
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
            buddies: options.buddies.map(|buddies| buddies.group),
            corrupt: false,
            deferred: false,
            helped_chunks: 0,
            untold_end: false,
            slept: 0,
            control,
        }
    }

    /// Chunks that it holds, of all lanes.
    pub(super) fn load(&self) -> u32 {
        self.lanes.iter().map(|account| account.held).sum()
    }

    /// Whether it may hold another chunk when `room` is what the others leave it.
    pub(super) fn has_credit(&self, lane: usize, room: u32) -> bool {
        let account = &self.lanes[lane];
        let limit = match self.policy {
            Policy::Block => account.credit,
            _ => account.credit.min(room),
        };
        account.held < limit
    }

    /// On which terms it gets the chunk that was just opened.
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

    /// Hands a chunk over, after a report of what was missed; `false` if the queue is corrupt.
    pub(super) fn deliver(&mut self, lane: usize, chunk: ChunkId, from: u32, cut: bool) -> bool {
        let missed = self.lanes[lane].take_unreported();
        let reported = self.report(lane, missed);
        // There is room for every chunk of the pool: only a corrupt reader refuses one.
        let delivery = Delivery::Chunk { chunk, from, cut };
        if !reported || self.deliveries.push(delivery.to_entry()).is_err() {
            self.corrupt = true;
            return false;
        }
        self.lanes[lane].held += 1;
        true
    }

    /// Reports missed packets to the reader; `false` if its queue is corrupt.
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

    /// Notes what it missed on a lane.
    pub(super) fn miss(&mut self, lane: usize, missing: Missing) {
        self.lanes[lane].missed += missing;
        self.lanes[lane].unreported += missing;
    }

    /// Whether it sleeps and wants to be woken.
    pub(super) fn is_asleep(&self) -> bool {
        !self.deferred && self.control.reader().asleep.is_raised()
    }

    /// Whether it sleeps, or slept at some time since this was last `false`.
    pub(super) fn slept_lately(&mut self) -> bool {
        let sleeps = self.control.reader().sleeps.load(Relaxed);
        let lately = sleeps != self.slept && !self.deferred;
        if !self.is_asleep() {
            self.slept = sleeps;
        }
        lately
    }

    /// Whether there is more for it than it says it took, when the lanes' next packets have
    /// these sequences; the end counts once.
    pub(super) fn has_news(&mut self, positions: &[u64]) -> bool {
        let ends = self.lanes.iter().zip(positions);
        let ends = ends.fold(0, |sum: u64, (lane, now)| sum.wrapping_add(lane.ends(*now)));
        ends != self.control.reader().read_to.load(Relaxed) || std::mem::take(&mut self.untold_end)
    }

    /// The next chunk that the reader gave back.
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

/// Chunks of a lane with `share` chunks that the reader may hold.
fn credit(options: &ReaderOptions, share: u32) -> u32 {
    let most = match options.policy {
        Policy::Block => share,
        _ => share - reserve(share),
    };
    options.credit.unwrap_or(most).clamp(1, share.max(1))
}

/// Chunks of a lane with `share` chunks that no single reader's usual credit takes.
pub(super) fn reserve(share: u32) -> u32 {
    (share / 8).clamp(2, RESERVE).min(share.saturating_sub(1))
}

/// Fewest chunks of a lane with which several slow readers together cannot starve a fast one.
pub(super) fn fewest_chunks(readers: u32) -> u32 {
    match readers {
        0 | 1 => 2,
        _ => scarce(readers).saturating_mul(2),
    }
}

/// Free chunks of a lane below which no reader may take what it likes: half of them are enough
/// for each reader to take the open chunk and the next one, and for one of them to go on.
fn scarce(readers: u32) -> u32 {
    readers.saturating_mul(4).saturating_add(2)
}

/// Chunks that one reader may hold when so many of a lane are free: the fewer there are, the
/// less, so that several slow readers together cannot starve a fast one. (In a lane of fewer than
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
