// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who sits in which group, and the rules for the sources that follow from it.
//!
//! Invariants
//! - A seat has one bit of the mask at every source, and no other seat has it, but for the last
//!   bit: seats for which none is left share it, and run their filters themselves; if there are
//!   several, they get everything. Members of a group that divides lanes share one bit: who reads
//!   a chunk is not known when its packets are judged.
//! - Each bucket of a balanced group belongs to one member; shares differ by one bucket at most,
//!   until a busy member with an offload threshold gives some away.
#![forbid(unsafe_code)]

use std::sync::Arc;

use ringtap_filter::Program;
use ringtap_pool::classify::{BUCKETS, Balance, Place, Rule, Rules};
use ringtap_pool::distributor::Buddies;
use ringtap_pool::offload::{self, Load};

use crate::group::{Division, Group};

/// A reader's number, never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatId(pub u64);

/// Bits that belong to one seat each; the one after them is shared.
const OWN_BITS: u32 = 63;
const NOT_IN_SOURCE: &str = "a member of a balanced group runs its own filter itself";
const NO_BIT_LEFT: &str = "there are more readers than bits in a packet's mask";

struct Member {
    seat: SeatId,
    /// `None`: it shares the last one.
    bit: Option<u32>,
    own: Program,
}

struct Seats {
    group: Group,
    members: Vec<Member>,
    buckets: [Option<SeatId>; BUCKETS],
    moved_buckets: u64,
}

/// All groups and their members.
pub(crate) struct Membership {
    groups: Vec<Seats>,
    used_bits: u64,
}

/// What a seat gets.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Its bit.
    pub(crate) mask: u64,
    /// The program that says which packets are its own: its group's and its own.
    pub(crate) filter: Program,
    /// The rule that stands for it in a source, or why none does.
    pub(crate) rule: Result<usize, &'static str>,
}

/// Why there is no seat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Full {
    NoGroup,
    Members(u32),
    NoBit,
    Filter,
}

impl Membership {
    pub(crate) fn new(groups: Vec<Group>) -> Self {
        let seats = |group| Seats {
            group,
            members: Vec::new(),
            buckets: [None; BUCKETS],
            moved_buckets: 0,
        };
        Membership {
            groups: groups.into_iter().map(seats).collect(),
            used_bits: 0,
        }
    }

    /// The groups with the number of their members.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&Group, usize)> {
        self.groups
            .iter()
            .map(|seats| (&seats.group, seats.members.len()))
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        let seats = self.groups.iter().find(|seats| seats.group.name == name)?;
        Some(&seats.group)
    }

    /// With whom a member of this group shares chunks, if the group divides them.
    pub(crate) fn buddies(&self, name: &str) -> Option<Buddies> {
        let mut numbered = (0..).zip(&self.groups);
        let (number, seats) = numbered.find(|(_, seats)| seats.group.name == name)?;
        (seats.group.division == Division::Lanes).then_some(Buddies {
            group: number,
            offload_percent: seats.group.offload_percent,
        })
    }

    /// Gives a seat in a group.
    pub(crate) fn join(&mut self, name: &str, seat: SeatId, own: Program) -> Result<(), Full> {
        let free = (0..OWN_BITS).find(|bit| self.used_bits & (1 << bit) == 0);
        let seats = self
            .groups
            .iter_mut()
            .find(|seats| seats.group.name == name);
        let seats = seats.ok_or(Full::NoGroup)?;
        let bit = match seats.members.first() {
            Some(buddy) if seats.group.division == Division::Lanes => buddy.bit,
            _ => free,
        };
        if seats.members.len() >= usize::try_from(seats.group.most_members).unwrap_or(usize::MAX) {
            return Err(Full::Members(seats.group.most_members));
        }
        if bit.is_none() && seats.group.balance != Balance::Everyone {
            return Err(Full::NoBit);
        }
        seats.group.filter.and(&own).ok_or(Full::Filter)?;
        self.used_bits |= bit.map_or(0, |bit| 1 << bit);
        seats.members.push(Member { seat, bit, own });
        seats.share_out();
        Ok(())
    }

    /// Takes a seat away; what it had goes to the other members.
    pub(crate) fn leave(&mut self, seat: SeatId) {
        for seats in &mut self.groups {
            let Some(at) = seats.members.iter().position(|member| member.seat == seat) else {
                continue;
            };
            let bit = seats.members.remove(at).bit;
            let is_shared = seats.members.iter().any(|member| member.bit == bit);
            if let Some(bit) = bit.filter(|_| !is_shared) {
                self.used_bits &= !(1 << bit);
            }
            seats.share_out();
        }
    }

    /// Changes a seat's own filter; gives the one before.
    pub(crate) fn set_filter(&mut self, seat: SeatId, own: Program) -> Result<Program, Full> {
        for seats in &mut self.groups {
            let found = seats.members.iter_mut().find(|member| member.seat == seat);
            if let Some(member) = found {
                seats.group.filter.and(&own).ok_or(Full::Filter)?;
                return Ok(std::mem::replace(&mut member.own, own));
            }
        }
        Err(Full::NoGroup)
    }

    /// Buckets that a group's busy members gave away.
    pub(crate) fn moved_buckets(&self, name: &str) -> u64 {
        let mut named = self.groups.iter().filter(|seats| seats.group.name == name);
        named.next().map_or(0, |seats| seats.moved_buckets)
    }

    /// Whether a busy member of some group may give flows away.
    pub(crate) fn may_offload(&self) -> bool {
        self.groups.iter().any(|seats| seats.offloads_flows())
    }

    /// Moves buckets from busy members to idle ones; tells whether any moved. `load` is that of
    /// a seat, `weigh` adds up what waits for it by bucket.
    pub(crate) fn offload(
        &mut self,
        load: impl Fn(SeatId) -> Load,
        weigh: impl Fn(SeatId, &mut [u64; BUCKETS]),
    ) -> bool {
        let mut moved = false;
        let groups = self.groups.iter_mut();
        for seats in groups.filter(|seats| seats.offloads_flows()) {
            moved |= seats.offload(&load, &weigh);
        }
        moved
    }

    /// The rules for every source.
    pub(crate) fn rules(&self) -> Rules {
        let mut rules = Vec::new();
        self.each_rule(|rule, _| rules.push(rule));
        Rules(rules)
    }

    /// What this seat gets under these rules.
    pub(crate) fn share(&self, seat: SeatId) -> Option<Share> {
        let (seats, member) = self.groups.iter().find_map(|seats| {
            let member = seats.members.iter().find(|member| member.seat == seat)?;
            Some((seats, member))
        })?;
        let balanced =
            seats.group.balance != Balance::Everyone || seats.group.division == Division::Lanes;
        let mut rule = Err(NO_BIT_LEFT);
        let mut index = 0;
        self.each_rule(|_, of| {
            if member.bit.is_some() && of.contains(&seat) {
                rule = Ok(index);
            }
            index += 1;
        });
        if balanced && !member.own.takes_everything() {
            rule = Err(NOT_IN_SOURCE);
        }
        Some(Share {
            mask: member.mask(),
            filter: seats.group.filter.and(&member.own)?,
            rule,
        })
    }

    /// Calls `each` for every rule and the seats it stands for.
    fn each_rule(&self, mut each: impl FnMut(Rule, &[SeatId])) {
        for seats in &self.groups {
            seats.each_rule(&mut each);
        }
        let rest = self.groups.iter().flat_map(|seats| {
            let without = seats.members.iter().filter(|member| member.bit.is_none());
            without.map(|member| (&seats.group, member))
        });
        let rest: Vec<_> = rest.collect();
        let everything = Rule::everything(1 << OWN_BITS);
        match &rest[..] {
            [] => {}
            // As long as it is alone nothing need be captured that it does not want. It runs its
            // filter all the same: others may come.
            [(group, member)] => {
                let both = group.filter.and(&member.own);
                let rule = Rule {
                    filter: both.as_ref().map(entries).unwrap_or_default(),
                    ..everything
                };
                each(rule, &[member.seat]);
            }
            several => {
                let seats: Vec<_> = several.iter().map(|(_, member)| member.seat).collect();
                each(everything, &seats);
            }
        }
    }
}

impl Member {
    fn mask(&self) -> u64 {
        1 << self.bit.unwrap_or(OWN_BITS)
    }
}

impl Seats {
    fn each_rule(&self, each: &mut impl FnMut(Rule, &[SeatId])) {
        let members: Vec<_> = self.members.iter().filter(|m| m.bit.is_some()).collect();
        let seats = |of: &[&Member]| -> Vec<SeatId> { of.iter().map(|m| m.seat).collect() };
        let group = entries(&self.group.filter);
        if self.group.balance != Balance::Everyone {
            if !members.is_empty() {
                let balance = self.group.balance.clone();
                let members_by_bucket = self.masks();
                let rule = Rule {
                    filter: group,
                    balance,
                    members: members_by_bucket,
                };
                each(rule, &seats(&members));
            }
            return;
        }
        let by_lanes = self.group.division == Division::Lanes;
        let (plain, own): (Vec<&Member>, Vec<&Member>) = members
            .into_iter()
            .partition(|m| by_lanes || m.own.takes_everything());
        if !plain.is_empty() {
            let mask = plain.iter().fold(0, |mask, member| mask | member.mask());
            let rule = Rule {
                filter: group,
                ..Rule::everything(mask)
            };
            each(rule, &seats(&plain));
        }
        for member in own {
            let both = self.group.filter.and(&member.own);
            let rule = Rule {
                filter: both.as_ref().map(entries).unwrap_or_default(),
                ..Rule::everything(member.mask())
            };
            each(rule, &[member.seat]);
        }
    }

    fn offloads_flows(&self) -> bool {
        let divides = self.group.division == Division::Packets;
        divides && self.group.offload_percent.is_some() && self.members.len() > 1
    }

    fn offload(
        &mut self,
        load: impl Fn(SeatId) -> Load,
        weigh: impl Fn(SeatId, &mut [u64; BUCKETS]),
    ) -> bool {
        let Some(threshold) = self.group.offload_percent else {
            return false;
        };
        let members: Vec<_> = self.members.iter().map(|member| member.seat).collect();
        let loads: Vec<_> = members.iter().map(|seat| load(*seat)).collect();
        let mut weights = [0; BUCKETS];
        for (seat, load) in members.iter().zip(&loads) {
            if load.percent > u32::from(threshold) {
                weigh(*seat, &mut weights);
            }
        }
        let place = |seat: SeatId| members.iter().position(|member| *member == seat);
        let owners = self.buckets.map(|owner| owner.and_then(place));
        let moves = offload::moves(&owners, &loads, &weights, threshold);
        for (bucket, to) in &moves {
            self.buckets[*bucket] = members.get(*to).copied();
            self.moved_buckets += 1;
        }
        !moves.is_empty()
    }

    fn masks(&self) -> Arc<[u64; BUCKETS]> {
        let mask = |seat: &Option<SeatId>| {
            let member = self
                .members
                .iter()
                .find(|member| Some(member.seat) == *seat);
            member.map_or(0, Member::mask)
        };
        Arc::new(self.buckets.each_ref().map(mask))
    }

    /// Gives every bucket an owner, moving as few as possible.
    fn share_out(&mut self) {
        let members: Vec<_> = self.members.iter().map(|member| member.seat).collect();
        if members.is_empty() {
            self.buckets = [None; BUCKETS];
            return;
        }
        for bucket in &mut self.buckets {
            *bucket = bucket.filter(|seat| members.contains(seat));
        }
        let count = |buckets: &[Option<SeatId>], seat| {
            buckets.iter().filter(|owner| **owner == Some(seat)).count()
        };
        let (least, extra) = (BUCKETS / members.len(), BUCKETS % members.len());
        for (at, seat) in members.iter().enumerate() {
            let due = least + usize::from(at < extra);
            let have = count(&self.buckets, *seat);
            let mut surplus = have.saturating_sub(due);
            for bucket in &mut self.buckets {
                if surplus > 0 && *bucket == Some(*seat) {
                    *bucket = None;
                    surplus -= 1;
                }
            }
        }
        for (at, seat) in members.iter().enumerate() {
            let due = least + usize::from(at < extra);
            let have = count(&self.buckets, *seat);
            let free = self.buckets.iter_mut().filter(|bucket| bucket.is_none());
            for bucket in free.take(due.saturating_sub(have)) {
                *bucket = Some(*seat);
            }
        }
    }
}

fn entries(program: &Program) -> Arc<[u64]> {
    program.to_entries().into()
}

/// Where a seat's filter runs, by what a source said of its rules.
pub(crate) fn place(share: &Share, places: &[Place]) -> Place {
    match share.rule {
        Ok(rule) => places.get(rule).cloned().unwrap_or(Place::Source),
        Err(why) => Place::Reader(why.to_owned()),
    }
}

#[cfg(test)]
mod tests;
