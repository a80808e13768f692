// SPDX-License-Identifier: MIT OR Apache-2.0
//! A group that divides flows between its readers, in virtual time: the rules that the queues
//! judge by, and flows on their way from busy readers to idle ones.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use ringtap_pool::classify::{BUCKETS, Balance, Headers, Rule, Rules};
use ringtap_pool::distributor::Distributor;
use ringtap_pool::ids::ReaderId;
use ringtap_pool::offload::Load;
use ringtap_pool::offload::buckets::{Buckets, Due, Members};

use super::Queue;
use crate::sim::SimError;

/// How often the hub looks at moves that are under way, at least, in picoseconds.
pub(super) const LOOK_PS: u64 = 5_000_000_000;

/// The group's buckets, and who reads them.
pub(super) struct Flows {
    readers: Vec<ReaderId>,
    buckets: Buckets<ReaderId>,
    offload_percent: Option<u8>,
    /// How often a new owner did not wait for the former one.
    pub(super) unordered_moves: u64,
}

/// The bit that stands for a reader in the masks of packets.
pub(super) fn mask(at: u32) -> u64 {
    1_u64.checked_shl(at).unwrap_or(0)
}

struct Known<'a>(&'a Distributor);

impl Members<ReaderId> for Known<'_> {
    fn load(&self, member: ReaderId) -> Load {
        self.0.load(member)
    }

    fn weigh(&self, member: ReaderId, weights: &mut [u64; BUCKETS]) {
        self.0.weigh(member, weights);
    }

    fn is_held_back(&self, member: ReaderId) -> bool {
        self.0.is_held_back(member)
    }

    fn follows(&self, member: ReaderId) -> bool {
        self.0.follows(member)
    }
}

impl Flows {
    /// Divides flows between these readers, and tells the queues.
    pub(super) fn new(
        readers: Vec<ReaderId>,
        offload_percent: Option<u8>,
        queues: &[Queue],
    ) -> Result<Self, SimError> {
        let mut buckets = Buckets::default();
        buckets.share_out(&readers);
        let flows = Flows {
            readers,
            buckets,
            offload_percent,
            unordered_moves: 0,
        };
        flows.tell(queues)?;
        Ok(flows)
    }

    /// Buckets that changed hands.
    pub(super) fn moved_buckets(&self) -> u64 {
        self.buckets.moved()
    }

    /// Whether flows are on their way.
    pub(super) fn are_moving(&self) -> bool {
        self.buckets.is_moving()
    }

    /// Does what is due for flows to move; tells whether anything was.
    pub(super) fn carry_on(
        &mut self,
        now_ps: u64,
        distributor: &mut Distributor,
        queues: &[Queue],
    ) -> Result<bool, SimError> {
        let Some(threshold) = self.offload_percent else {
            return Ok(false);
        };
        let now = Duration::from_nanos(now_ps / 1000);
        let mut any = false;
        loop {
            let known = Known(distributor);
            let due = self.buckets.due(&self.readers, threshold, now, &known);
            match due {
                None => return Ok(any),
                Some(Due::HoldBack(to)) => distributor.hold_back(to),
                Some(Due::LetGo(to, held)) => distributor.let_go(to, held),
                Some(Due::Over(to)) => self.unordered_moves += distributor.take_unordered(to),
                Some(Due::Change { from, to }) => {
                    self.tell(queues)?;
                    distributor.follow(to, from);
                }
            }
            any = true;
        }
    }

    /// Puts the rules in force that say who has which bucket.
    fn tell(&self, queues: &[Queue]) -> Result<(), SimError> {
        let owner = |owner: &Option<ReaderId>| {
            let mut readers = (0..).zip(&self.readers);
            let found = readers.find(|(_, reader)| Some(**reader) == *owner);
            found.map_or(0, |(at, _)| mask(at))
        };
        let rules = Rules(vec![Rule {
            balance: Balance::Flow(Headers::Outer),
            members: Arc::new(self.buckets.owners().each_ref().map(owner)),
            ..Rule::everything(0)
        }]);
        queues.iter().try_for_each(|queue| queue.judge_by(&rules))
    }
}
