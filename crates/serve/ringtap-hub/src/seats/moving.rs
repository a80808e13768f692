// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows on their way from busy members of groups to idle ones.
#![forbid(unsafe_code)]

use std::time::Duration;

use ringtap_pool::classify::BUCKETS;
use ringtap_pool::distributor::HeldBack;
use ringtap_pool::offload::Load;
use ringtap_pool::offload::buckets::{Due, Members};

use super::{Inlet, Seats};
use crate::capture::Capture;
use crate::engine::Engine;
use crate::membership::SeatId;

/// What sources and their distributors know of seats.
struct Known<'a> {
    seats: &'a Seats,
    captures: &'a [Capture],
}

impl<'a> Known<'a> {
    fn inlets(&self, seat: SeatId) -> impl Iterator<Item = (&'a Capture, &'a Inlet)> + use<'a> {
        let captures = self.captures;
        let inlets = self.seats.inlets(seat).iter();
        inlets.map(|inlet| (&captures[inlet.capture], inlet))
    }
}

impl Members<SeatId> for Known<'_> {
    fn load(&self, member: SeatId) -> Load {
        let loads = self.inlets(member);
        let loads = loads.map(|(capture, inlet)| capture.distributor.load(inlet.reader));
        loads.max_by_key(|load| load.percent).unwrap_or_default()
    }

    fn weigh(&self, member: SeatId, weights: &mut [u64; BUCKETS]) {
        for (capture, inlet) in self.inlets(member) {
            capture.distributor.weigh(inlet.reader, weights);
        }
    }

    fn is_held_back(&self, member: SeatId) -> bool {
        let mut inlets = self.inlets(member);
        inlets.all(|(capture, inlet)| capture.distributor.is_held_back(inlet.reader))
    }

    fn follows(&self, member: SeatId) -> bool {
        let mut inlets = self.inlets(member);
        inlets.any(|(capture, inlet)| capture.distributor.follows(inlet.reader))
    }
}

impl Engine {
    /// Lets busy members of groups give flows to idle ones.
    pub(crate) fn offload_flows(&mut self, now: Duration) {
        loop {
            let known = Known {
                seats: &self.seats,
                captures: &self.captures,
            };
            let due = self.membership.due(now, &known);
            if due.is_empty() {
                return;
            }
            due.into_iter().for_each(|due| self.carry_on(due));
            // Something may have been handed over.
            self.wake_sleepers();
        }
    }

    fn carry_on(&mut self, due: Due<SeatId>) {
        match due {
            Due::HoldBack(to) => self.at_each(to, |capture, reader| {
                capture.distributor.hold_back(reader);
            }),
            Due::Change { from, to } => self.change_hands(from, to),
            Due::LetGo(to, held) => self.at_each(to, |capture, reader| {
                capture.distributor.let_go(reader, held);
            }),
            Due::Over(to) => self.note_unordered(to),
        }
    }

    /// Notes how often a seat did not wait for the former owner of its flows.
    pub(super) fn note_unordered(&mut self, seat: SeatId) {
        let mut unordered = 0;
        self.at_each(seat, |capture, reader| {
            unordered += capture.distributor.take_unordered(reader);
        });
        self.membership.moved(seat, unordered);
    }

    fn change_hands(&mut self, from: SeatId, to: SeatId) {
        // As long as they are refused, flows stay with whom the sources know as their owners.
        if let Err(error) = self.classify() {
            tracing::error!("the rules by which flows move: {error}");
            self.at_each(to, |capture, reader| {
                capture.distributor.let_go(reader, HeldBack::Anywhere);
            });
            return;
        }
        for inlet in self.seats.inlets(to) {
            let distributor = &mut self.captures[inlet.capture].distributor;
            let mut leaders = self.seats.inlets(from).iter();
            match leaders.find(|leader| leader.capture == inlet.capture) {
                Some(leader) => distributor.follow(inlet.reader, leader.reader),
                None => distributor.let_go(inlet.reader, HeldBack::Anywhere),
            }
        }
    }

    fn at_each(
        &mut self,
        seat: SeatId,
        mut each: impl FnMut(&mut Capture, ringtap_pool::ids::ReaderId),
    ) {
        for inlet in self.seats.inlets(seat) {
            each(&mut self.captures[inlet.capture], inlet.reader);
        }
    }
}
