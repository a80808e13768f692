// SPDX-License-Identifier: MIT OR Apache-2.0
//! Owners: the readers of one user have common limits.
//!
//! Invariants
//! - Each reader has one owner. A reader without a user is its owner's only reader.
//! - An owner without readers holds nothing; its place is used again.
#![forbid(unsafe_code)]

use super::chunks::{ReaderSet, SharedUse};

/// The readers of one user, and what they hold together.
pub(super) struct ReaderOwner {
    pub(super) user: Option<u32>,
    pub(super) readers: ReaderSet,
    /// For each lane, the chunks that one of the readers holds beyond its guarantee.
    shared_held: Vec<u32>,
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
        let at = found.or_else(|| self.0.iter().position(is_free));
        let at = at.unwrap_or(self.0.len());
        if at == self.0.len() {
            self.0.push(ReaderOwner {
                user,
                readers: ReaderSet::default(),
                shared_held: vec![0; lanes],
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
