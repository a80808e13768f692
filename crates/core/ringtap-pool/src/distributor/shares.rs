// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares: sets of readers of which one gets each chunk.
//!
//! Invariants
//! - Each chunk that is opened while a share has readers goes to one of them. The other readers of
//!   the share count its packets as packets for other members, not as lost.

use super::scheduler::Candidate;
use crate::ids::ReaderId;

/// The readers of one share.
pub(super) struct Sharers {
    pub(super) number: u32,
    /// Indices of the share's readers, oldest first; at least one.
    pub(super) readers: Vec<usize>,
}

/// The reader of a share that gets a lane's next chunk.
pub(super) struct Choice {
    pub(super) share: u32,
    /// All readers of the share that could get the chunk.
    pub(super) candidates: Vec<Candidate>,
    pub(super) chosen: ReaderId,
}

impl Choice {
    pub(super) fn reader(&self) -> usize {
        self.chosen.index()
    }
}

/// Whether these choices leave out a reader of a share.
pub(super) fn is_elsewhere(reader: usize, choices: &[Choice]) -> bool {
    !choices.iter().any(|choice| choice.reader() == reader)
}

/// All shares that have readers.
#[derive(Default)]
pub(super) struct ChunkShares(pub(super) Vec<Sharers>);

impl ChunkShares {
    pub(super) fn join(&mut self, number: u32, reader: usize) {
        match self.0.iter_mut().find(|share| share.number == number) {
            Some(share) => share.readers.push(reader),
            None => self.0.push(Sharers {
                number,
                readers: vec![reader],
            }),
        }
    }

    pub(super) fn leave(&mut self, reader: usize) {
        for share in &mut self.0 {
            share.readers.retain(|one| *one != reader);
        }
        self.0.retain(|share| !share.readers.is_empty());
    }

    pub(super) fn share_of(&self, reader: usize) -> Option<&Sharers> {
        self.0.iter().find(|share| share.readers.contains(&reader))
    }
}
