// SPDX-License-Identifier: MIT OR Apache-2.0
//! A group that divides flows between its readers, in virtual time.
//!
//! It gives the queues the rules that assign packets to readers, and moves buckets of flows from
//! busy readers to idle ones.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use ringtap_filter::{BUCKETS, Balance, Headers, Rule, Rules};
use ringtap_pool::distributor::Distributor;
use ringtap_pool::ids::ReaderId;
use ringtap_pool::offload::Load;
use ringtap_pool::offload::buckets::{Buckets, Due, Members};

use super::VirtualQueue;
use crate::CaptureError;

/// The longest time between two turns of the hub while buckets move, in picoseconds.
pub(super) const LOOK_PS: u64 = 5_000_000_000;

/// The group's buckets and their owners.
pub(super) struct FlowGroup {
    readers: Vec<ReaderId>,
    buckets: Buckets<ReaderId>,
    offload_percent: Option<u8>,
    /// Number of moves in which a new owner did not wait for the former one.
    pub(super) unordered_moves: u64,
}

/// The bit of a reader in the masks of packets.
pub(super) fn mask(reader: u32) -> u64 {
    1_u64.checked_shl(reader).unwrap_or(0)
}

/// The distributor's knowledge of the group's members.
struct DistributorView<'a>(&'a Distributor);

impl Members<ReaderId> for DistributorView<'_> {
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

impl FlowGroup {
    /// Divides flows between these readers, and gives the queues the rules for it.
    pub(super) fn new(
        readers: Vec<ReaderId>,
        offload_percent: Option<u8>,
        queues: &[VirtualQueue],
    ) -> Result<Self, CaptureError> {
        let mut buckets = Buckets::default();
        buckets.share_out(&readers);
        let flows = FlowGroup {
            readers,
            buckets,
            offload_percent,
            unordered_moves: 0,
        };
        flows.classify(queues)?;
        Ok(flows)
    }

    /// Number of buckets that changed owners.
    pub(super) fn moved_buckets(&self) -> u64 {
        self.buckets.moved()
    }

    /// Whether buckets are being moved.
    pub(super) fn is_moving(&self) -> bool {
        self.buckets.is_moving()
    }

    /// Does all steps of moves that are due; returns whether there were any.
    pub(super) fn advance(
        &mut self,
        now_ps: u64,
        distributor: &mut Distributor,
        queues: &[VirtualQueue],
    ) -> Result<bool, CaptureError> {
        let Some(threshold) = self.offload_percent else {
            return Ok(false);
        };
        let now = Duration::from_nanos(now_ps / 1000);
        let mut any = false;
        loop {
            let members = DistributorView(distributor);
            match self.buckets.due(&self.readers, threshold, now, &members) {
                None => return Ok(any),
                Some(Due::HoldBack(to)) => distributor.hold_back(to),
                Some(Due::LetGo(to, held)) => distributor.let_go(to, held),
                Some(Due::Over(to)) => self.unordered_moves += distributor.take_unordered(to),
                Some(Due::Change { from, to }) => {
                    self.classify(queues)?;
                    distributor.follow(to, from);
                }
            }
            any = true;
        }
    }

    /// Gives the queues the rule that assigns each bucket to its owner.
    fn classify(&self, queues: &[VirtualQueue]) -> Result<(), CaptureError> {
        let owner = |owner: &Option<ReaderId>| {
            let mut readers = (0..).zip(&self.readers);
            let found = readers.find(|(_, reader)| Some(**reader) == *owner);
            found.map_or(0, |(number, _)| mask(number))
        };
        let rules = Rules(vec![Rule {
            balance: Balance::Flow(Headers::Outer),
            members: Arc::new(self.buckets.owners().each_ref().map(owner)),
            ..Rule::everything(0)
        }]);
        queues.iter().try_for_each(|queue| queue.classify(&rules))
    }
}
