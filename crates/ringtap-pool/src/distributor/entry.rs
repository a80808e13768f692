// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the distributor knows of one reader: its queues, its credit, its losses.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::ids::ChunkId;
use crate::queue::{self, Consumer, Producer};
use crate::reader::{Delivery, ReaderParts, Shared};
use crate::view::Pool;
use crate::wake::{Signal, WakeWord};

/// Chunks of a lane that one reader's default credit leaves to the others, at most.
pub(super) const RESERVE: u32 = 64;

/// What happens when a reader is past its credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// The reader loses the newest packets; nobody else notices.
    #[default]
    DropNewest,
    /// The source waits. Only for sources that can: files and simulated ones.
    Block,
}

/// How a reader wants to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReaderOptions {
    /// Chunks of one lane that it may hold; by default all but a reserve for the others, and
    /// really all when the source can wait.
    pub credit: Option<u32>,
    /// What happens past that.
    pub policy: Policy,
}

pub(super) struct Entry {
    deliveries: Producer,
    returns: Consumer,
    pub(super) shared: Arc<Shared>,
    pub(super) policy: Policy,
    credit: Vec<u32>,
    /// Chunks that it holds, per lane.
    pub(super) held: Vec<u32>,
    /// Packets that it lost past its credit, per lane.
    pub(super) slow: Vec<u64>,
    pub(super) corrupt: bool,
}

impl Entry {
    pub(super) fn new(
        options: &ReaderOptions,
        shares: Vec<u32>,
        expected: Vec<u64>,
        pool: &Pool,
        wake_words: Vec<WakeWord>,
        distributor: Arc<dyn Signal>,
    ) -> (Self, ReaderParts) {
        let all: u32 = shares.iter().sum();
        let (deliveries, delivered) = queue::pair(all);
        let (returned, returns) = queue::pair(all);
        let shared: Arc<Shared> = Arc::default();
        let entry = Entry {
            deliveries,
            returns,
            shared: Arc::clone(&shared),
            policy: options.policy,
            held: vec![0; shares.len()],
            slow: vec![0; shares.len()],
            credit: shares
                .into_iter()
                .map(|share| credit(options, share))
                .collect(),
            corrupt: false,
        };
        let pool = pool.clone();
        let parts = ReaderParts {
            pool,
            deliveries: delivered,
            returns: returned,
            shared,
            expected,
            wake_words,
            distributor,
        };
        (entry, parts)
    }

    pub(super) fn has_credit(&self, lane: usize) -> bool {
        self.held[lane] < self.credit[lane]
    }

    /// Hands a chunk over; `false` if the reader's queue is corrupt.
    pub(super) fn deliver(&mut self, lane: usize, delivery: Delivery) -> bool {
        // There is room for every chunk of the pool: only a corrupt reader refuses one.
        if self.deliveries.push(delivery.to_entry()).is_err() {
            self.corrupt = true;
            return false;
        }
        self.held[lane] += 1;
        true
    }

    /// The next chunk that the reader gave back.
    pub(super) fn returned(&mut self) -> Option<ChunkId> {
        if self.corrupt {
            return None;
        }
        match self.returns.pop() {
            Ok(entry) => entry.map(|entry| ChunkId(u32::try_from(entry).unwrap_or(u32::MAX))),
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
        Policy::DropNewest => share - (share / 8).clamp(2, RESERVE).min(share - 1),
    };
    options.credit.unwrap_or(most).clamp(1, share.max(1))
}
