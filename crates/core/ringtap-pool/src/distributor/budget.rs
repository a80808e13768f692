// SPDX-License-Identifier: MIT OR Apache-2.0
//! Budgets of leases: the part of a lane's chunks that each reader may hold.
//!
//! No lease can be revoked from a reader that reads in place, so every limit must hold beforehand.
//! The writer keeps a reserve of W of the lane's C chunks; readers hold at most T = C - W. Half of T
//! is reserved for guarantees, the other half is shared. Each reader may always hold its guarantee.
//! Beyond that, it takes chunks of the shared half while its owner's readers together hold fewer of
//! them than [`ALPHA`] times those that are left: a dynamic threshold, as switches use for shared
//! buffers (Choudhury and Hahne 1998). A threshold alone would guarantee nothing to the last reader
//! when owners stop one after the other.
//!
//! Invariants
//! - The guarantees of a lane's readers add up to at most half of T.
//! - A chunk counts once for the shared half, however many readers hold it beyond their guarantees.
//! - At most T chunks of a lane are leased, so the writer always finds a chunk once the distributor
//!   has handled what the writer opened.
//! - Each reader has one owner, its user. A reader without a user is its owner's only reader.
//! - An owner without readers holds nothing; its place is used again.

use super::chunks::SharedUse;
use super::reader_set::ReaderSet;
use crate::number::to_u32;

/// Largest number of chunks of one lane that only its writer uses.
const MAX_RESERVE: u32 = 64;

/// Factor of the dynamic threshold.
const ALPHA: u32 = 4;

/// Smallest full guarantee: the open chunk and the one before, with which a reader keeps up. Also
/// the guarantee of each reader after those with a full guarantee.
pub(super) const LEAST: u32 = 2;

/// Number of chunks that readers leave to the writer, of a lane with `chunks` chunks.
pub(super) fn reserve(chunks: u32) -> u32 {
    (chunks / 8)
        .clamp(2, MAX_RESERVE)
        .min(chunks.saturating_sub(1))
}

/// Chunks that a reader may take of a lane's shared half.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Shared chunks below which its owner may take a further one.
    pub(super) threshold: u32,
    pub(super) may_share: bool,
}

/// Division of one lane's chunks between its readers.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneBudget {
    /// Guarantee of each of the first readers; 0 if only credits limit readers.
    pub(super) full: u32,
    /// Chunks reserved for guarantees.
    for_guarantees: u32,
    /// Sum of the readers' guarantees, in chunks.
    pub(super) guaranteed: u32,
    /// Chunks that readers may hold beyond their guarantees, all readers together.
    shared: u32,
    /// Chunks that at least one reader holds beyond its guarantee.
    shared_held: u32,
}

impl LaneBudget {
    /// No guarantees: only its credit limits a reader.
    pub(super) const UNLIMITED: Self = LaneBudget {
        full: 0,
        for_guarantees: 0,
        guaranteed: 0,
        shared: u32::MAX,
        shared_held: 0,
    };

    /// The budget of a lane for `readers` readers with a full guarantee; no limits for one reader.
    pub(super) fn new(chunks: u32, readers: u32) -> Self {
        if readers <= 1 {
            return LaneBudget::UNLIMITED;
        }
        let leasable = chunks - reserve(chunks);
        let for_guarantees = leasable / 2;
        // A quarter of the guarantees remains for readers that come later.
        let each = u64::from(leasable) * 3 / 8 / u64::from(readers);
        LaneBudget {
            full: to_u32(each).max(LEAST),
            for_guarantees,
            guaranteed: 0,
            shared: leasable - for_guarantees,
            shared_held: 0,
        }
    }

    /// Number of shared chunks below which an owner may take a further one.
    pub(super) fn threshold(&self) -> u32 {
        ALPHA.saturating_mul(self.shared.saturating_sub(self.shared_held))
    }

    /// Largest number of chunks that one reader holds while no other reader needs the shared half.
    pub(super) fn max_for_one(&self) -> u32 {
        self.full + self.shared - self.shared / (ALPHA + 1)
    }

    /// Counts a chunk that a reader holds beyond its guarantee, unless another reader does.
    pub(super) fn take_shared(&mut self, takes: SharedUse) {
        self.shared_held += u32::from(takes.of_lane);
    }

    /// Counts a chunk as free that no reader holds beyond its guarantee any more.
    pub(super) fn free_shared(&mut self, frees: SharedUse) {
        self.shared_held -= u32::from(frees.of_lane);
    }

    /// Raises a guarantee towards `wanted`, as far as chunks are left for guarantees.
    pub(super) fn raise(&mut self, guarantee: &mut u32, wanted: u32) {
        let left = self.for_guarantees - self.guaranteed;
        let more = wanted.saturating_sub(*guarantee).min(left);
        *guarantee += more;
        self.guaranteed += more;
    }
}

/// The readers of one user, and what they hold together.
pub(super) struct ReaderOwner {
    pub(super) user: Option<u32>,
    pub(super) readers: ReaderSet,
    /// For each lane, the chunks that one of the readers holds beyond its guarantee.
    shared_held: Vec<u32>,
    /// For each lane, the resting readers that wait for a chunk of the shared half.
    waiting: Vec<ReaderSet>,
}

/// All owners; readers name theirs by its index.
#[derive(Default)]
pub(super) struct Owners(Vec<ReaderOwner>);

impl Owners {
    /// Adds a reader; returns the index of its owner.
    pub(super) fn join(&mut self, user: Option<u32>, reader: usize, lanes: usize) -> usize {
        let is_it =
            |one: &ReaderOwner| user.is_some() && one.user == user && !one.readers.is_empty();
        let is_free = |one: &ReaderOwner| one.readers.is_empty();
        let found = self.0.iter().position(is_it);
        let at = found
            .or_else(|| self.0.iter().position(is_free))
            .unwrap_or(self.0.len());
        if at == self.0.len() {
            self.0.push(ReaderOwner {
                user,
                readers: ReaderSet::default(),
                shared_held: vec![0; lanes],
                waiting: vec![ReaderSet::default(); lanes],
            });
        }
        self.0[at].user = user;
        self.0[at].readers.add(reader);
        at
    }

    /// Removes a reader that holds nothing any more.
    pub(super) fn leave(&mut self, owner: usize, reader: usize) {
        self.0[owner].readers.remove(reader);
    }

    pub(super) fn get(&self, owner: usize) -> &ReaderOwner {
        &self.0[owner]
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The owner's resting readers that wait for a chunk of a lane's shared half.
    pub(super) fn waiting(&mut self, owner: usize, lane: usize) -> &mut ReaderSet {
        &mut self.0[owner].waiting[lane]
    }

    pub(super) fn takes(&mut self, owner: usize, lane: usize, takes: SharedUse) {
        self.0[owner].shared_held[lane] += u32::from(takes.of_owner);
    }

    pub(super) fn frees(&mut self, owner: usize, lane: usize, frees: SharedUse) {
        self.0[owner].shared_held[lane] -= u32::from(frees.of_owner);
    }
}

impl ReaderOwner {
    /// Chunks of a lane that the owner's readers hold beyond their guarantees.
    pub(super) fn shared_held(&self, lane: usize) -> u32 {
        self.shared_held[lane]
    }
}
