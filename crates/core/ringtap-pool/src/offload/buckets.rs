// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who has each bucket of a balanced group, and how buckets change hands.
//!
//! A busy member gives buckets to an idle one in three steps: the new owner is held back until
//! every lane fills a chunk that it has not been given; the rules change; the new owner goes on,
//! lane by lane, when the former one is done with what came before the change. This module says
//! what is due; who calls it knows readers, rules and the time.
//!
//! Invariants
//! - Shares differ by one bucket at most, until a busy member gives some away.
//! - One move of a group is under way at a time.
#![forbid(unsafe_code)]

use std::time::Duration;

use super::{Load, moves};
use crate::distributor::HeldBack;
use ringtap_filter::BUCKETS;

/// How often busy members may give buckets away: the last move must show its effect.
pub const LOOK: Duration = Duration::from_millis(50);
/// How long lanes are waited for that bring less than a chunk.
const QUIET: Duration = Duration::from_millis(50);
/// How long a new owner waits for the former one, at most.
const FOLLOWS_AT_MOST: Duration = Duration::from_secs(1);

/// What is due for a move to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due<K> {
    /// This member is to get nothing that is opened from now on.
    HoldBack(K),
    /// Buckets have a new owner: the rules are to say so, and then `to` is to follow `from`.
    Change {
        /// Who had them.
        from: K,
        /// Who has them.
        to: K,
    },
    /// This member has waited long enough on these lanes.
    LetGo(K, HeldBack),
    /// This member waits for nobody any more.
    Over(K),
}

/// What is known of a group's members by those who serve them.
pub trait Members<K> {
    /// How busy one is.
    fn load(&self, member: K) -> Load;
    /// Adds up what waits for one by bucket.
    fn weigh(&self, member: K, weights: &mut [u64; BUCKETS]);
    /// Whether no lane fills a chunk any more that it was given.
    fn is_held_back(&self, member: K) -> bool;
    /// Whether it still waits for another.
    fn follows(&self, member: K) -> bool;
}

#[derive(Clone, Debug, Default)]
enum Stage<K> {
    #[default]
    Still,
    /// The new owner is held back.
    Turning {
        from: K,
        to: K,
        buckets: Vec<usize>,
        since: Duration,
    },
    /// The new owner waits for the former one.
    Following {
        to: K,
        since: Duration,
        on_quiet_lanes: bool,
    },
}

/// The owners of a group's buckets.
#[derive(Clone, Debug)]
pub struct Buckets<K> {
    owners: [Option<K>; BUCKETS],
    moved: u64,
    stage: Stage<K>,
    looked: Duration,
}

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        Buckets {
            owners: [const { None }; BUCKETS],
            moved: 0,
            stage: Stage::Still,
            looked: Duration::ZERO,
        }
    }
}

impl<K: Copy + PartialEq> Buckets<K> {
    /// Who has each bucket.
    pub fn owners(&self) -> &[Option<K>; BUCKETS] {
        &self.owners
    }

    /// Buckets that busy members gave away.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Whether a move is under way: then something may be due at any time.
    pub fn is_moving(&self) -> bool {
        !matches!(self.stage, Stage::Still)
    }

    /// Gives every bucket an owner, moving as few as possible.
    pub fn share_out(&mut self, members: &[K]) {
        for bucket in &mut self.owners {
            *bucket = bucket.filter(|owner| members.contains(owner));
        }
        let Some(least) = BUCKETS.checked_div(members.len()) else {
            return;
        };
        let extra = BUCKETS % members.len();
        let due = |at: usize| least + usize::from(at < extra);
        for (at, member) in members.iter().enumerate() {
            let own = self.owners.iter_mut();
            let own = own.filter(|owner| **owner == Some(*member));
            own.skip(due(at)).for_each(|surplus| *surplus = None);
        }
        for (at, member) in members.iter().enumerate() {
            let have = self.owners.iter().filter(|owner| **owner == Some(*member));
            let lacks = due(at).saturating_sub(have.count());
            let free = self.owners.iter_mut().filter(|owner| owner.is_none());
            free.take(lacks).for_each(|owner| *owner = Some(*member));
        }
    }

    /// What is due at this moment, counted from any fixed one. What is said to be due is taken
    /// as done: call it again until nothing is.
    pub fn due(
        &mut self,
        members: &[K],
        threshold_percent: u8,
        now: Duration,
        known: &impl Members<K>,
    ) -> Option<Due<K>> {
        match &mut self.stage {
            Stage::Still => {
                if now < self.looked + LOOK {
                    return None;
                }
                self.looked = now;
                let (from, to, buckets) = self.choose(members, threshold_percent, known)?;
                self.stage = Stage::Turning {
                    from,
                    to,
                    buckets,
                    since: now,
                };
                Some(Due::HoldBack(to))
            }
            Stage::Turning {
                from,
                to,
                buckets,
                since,
            } => {
                let (from, to) = (*from, *to);
                if !members.contains(&to) || !members.contains(&from) {
                    self.stage = Stage::Still;
                    return Some(Due::LetGo(to, HeldBack::Anywhere));
                }
                if !known.is_held_back(to) && now < *since + QUIET {
                    return None;
                }
                for bucket in std::mem::take(buckets) {
                    if self.owners[bucket] == Some(from) {
                        self.owners[bucket] = Some(to);
                        self.moved += 1;
                    }
                }
                self.stage = Stage::Following {
                    to,
                    since: now,
                    on_quiet_lanes: true,
                };
                Some(Due::Change { from, to })
            }
            Stage::Following {
                to,
                since,
                on_quiet_lanes,
            } => {
                let (to, waited) = (*to, now.saturating_sub(*since));
                if !known.follows(to) {
                    self.stage = Stage::Still;
                    return Some(Due::Over(to));
                }
                if waited >= FOLLOWS_AT_MOST {
                    return Some(Due::LetGo(to, HeldBack::Anywhere));
                }
                let is_due = waited >= QUIET && std::mem::take(on_quiet_lanes);
                is_due.then_some(Due::LetGo(to, HeldBack::OnQuietLanes))
            }
        }
    }

    /// From whom to whom buckets are to go, and which.
    fn choose(
        &self,
        members: &[K],
        threshold_percent: u8,
        known: &impl Members<K>,
    ) -> Option<(K, K, Vec<usize>)> {
        let loads: Vec<_> = members.iter().map(|member| known.load(*member)).collect();
        let mut weights = [0; BUCKETS];
        for (member, load) in members.iter().zip(&loads) {
            if load.percent > u32::from(threshold_percent) {
                known.weigh(*member, &mut weights);
            }
        }
        let place = |owner: K| members.iter().position(|member| *member == owner);
        let owners = self.owners.map(|owner| owner.and_then(place));
        let moves = moves(&owners, &loads, &weights, threshold_percent);
        let (first, to) = moves.first()?;
        let (from, to) = (self.owners[*first]?, *members.get(*to)?);
        Some((from, to, moves.iter().map(|(bucket, _)| *bucket).collect()))
    }
}

#[cfg(test)]
mod tests;
