// SPDX-License-Identifier: MIT OR Apache-2.0
//! Taking, changing and leaving seats.
//!
//! Invariants
//! - A seat is taken at every source or at none; what failed leaves no trace.
//! - A seat begins with the first packet that the new rules judged.
#![forbid(unsafe_code)]

use ringtap_filter::Program;
use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::SharedMemory;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::seat::{Inlet as SeatInlet, Seat as ReaderSeat, Wanted};
use ringtap_pool::classify::Place;
use ringtap_pool::control::control_bytes;
use ringtap_pool::distributor::ReaderOptions;

use super::{Inlet, Seat, now_ns};
use crate::capture::Capture;
use crate::engine::Engine;
use crate::group::{Delivery, Group};
use crate::hub::{Ask, AttachError, InletFiles, Taken};
use crate::membership::{Full, SeatId, Share, place};
use crate::relay::{self, Relay};

/// What is made at one source.
struct Made {
    inlet: Inlet,
    seat: SeatInlet,
    files: InletFiles,
}

impl Engine {
    /// Gives a seat, if the asker may have it.
    pub(crate) fn attach(&mut self, ask: &Ask) -> Result<Taken, AttachError> {
        let group = self.permitted(ask)?;
        let id = self.seats.next_id();
        let joined = self.membership.join(&group.name, id, ask.filter.clone());
        joined.map_err(|full| refusal(full, &group))?;
        let taken = self.take(id, ask, &group);
        if taken.is_err() {
            self.leave(id);
        }
        taken
    }

    fn permitted(&self, ask: &Ask) -> Result<Group, AttachError> {
        let Some(group) = self.membership.group(&ask.group) else {
            let names: Vec<_> = self
                .membership
                .groups()
                .map(|(g, _)| g.name.clone())
                .collect();
            return Err(AttachError::NoGroup {
                group: ask.group.clone(),
                known: names.join(", "),
            });
        };
        let us = Peer::this_process();
        if ask.peer != us && !group.access.allows(&ask.peer, us.uid) {
            return Err(AttachError::NotAllowed {
                group: group.name.clone(),
                uid: ask.peer.uid,
            });
        }
        let allowed = group.most_watermark_packets;
        if ask.watermark.packets > allowed {
            return Err(too_much("watermark", group, ask.watermark.packets, allowed));
        }
        if let (Some(asked), Some(allowed)) = (ask.credit_chunks, group.credit_chunks)
            && asked > allowed
        {
            return Err(too_much("credit", group, asked, allowed));
        }
        Ok(group.clone())
    }

    fn take(&mut self, id: SeatId, ask: &Ask, group: &Group) -> Result<Taken, AttachError> {
        let places = self.classify()?;
        let share = self.membership.share(id).ok_or(AttachError::NoSeat)?;
        let private = ask.private || group.delivery == Delivery::Private;
        let (bell, readers_bell) = Event::pair()?;
        let options = ReaderOptions {
            credit: ask.credit_chunks.or(group.credit_chunks),
            policy: group.policy,
            mask: share.mask,
            buddies: self.membership.buddies(&group.name),
        };
        let made = self.take_everywhere(&options, &share, &places, ask)?;
        self.captures.iter_mut().for_each(Capture::mind_scarcity);
        let place = made
            .first()
            .map_or(Place::Source, |made| made.seat.wanted.place.clone());
        let (mut inlets, mut seats, mut files) = (Vec::new(), Vec::new(), Vec::new());
        for one in made {
            inlets.push(one.inlet);
            seats.push(one.seat);
            files.push(one.files);
        }
        let mut reader = ReaderSeat {
            inlets: seats,
            bell: readers_bell,
            watermark: ask.watermark,
        };
        let mut relay = None;
        if private {
            match Relay::start(reader, bell.clone(), group) {
                Ok((started, outlet)) => {
                    relay = Some(started);
                    let relay::Outlet { seat, files: own } = outlet;
                    (reader, files) = (seat, own);
                }
                Err(error) => {
                    self.give_back(&inlets);
                    return Err(error.into());
                }
            }
        }
        let seat = Seat {
            group: group.name.clone(),
            name: ask.name.clone(),
            peer: ask.peer.clone(),
            delivery: if private {
                Delivery::Private
            } else {
                Delivery::Shared
            },
            place,
            credit_chunks: options.credit,
            attached_ns: now_ns(),
            inlets,
            bell,
            is_silent: false,
            relay,
            watermark: ask.watermark,
            waits_since: None,
            lost: 0,
            last_loss_ns: 0,
        };
        self.seats.taken.insert(id, seat);
        tracing::info!(
            seat = id.0,
            group = group.name,
            reader = ask.name,
            pid = ask.peer.pid,
            "attached"
        );
        Ok(Taken {
            id,
            seat: reader,
            files,
        })
    }

    /// A place at every source, or at none.
    fn take_everywhere(
        &mut self,
        options: &ReaderOptions,
        share: &Share,
        places: &[Vec<Place>],
        ask: &Ask,
    ) -> Result<Vec<Made>, AttachError> {
        let mut made = Vec::new();
        for (at, places) in places.iter().enumerate() {
            let options = ReaderOptions {
                // What cannot drop packets waits for its readers.
                policy: match self.captures[at].facts.policy {
                    waits @ ringtap_pool::distributor::Policy::Block => waits,
                    _ => options.policy,
                },
                ..*options
            };
            match self.take_at(at, &options, share, place(share, places), ask) {
                Ok(one) => made.push(one),
                Err(error) => {
                    self.give_back(made.iter().map(|made| &made.inlet));
                    return Err(error);
                }
            }
        }
        Ok(made)
    }

    fn take_at(
        &mut self,
        at: usize,
        options: &ReaderOptions,
        share: &Share,
        place: Place,
        ask: &Ask,
    ) -> Result<Made, AttachError> {
        let capture = &mut self.captures[at];
        let memory = SharedMemory::create(control_bytes(capture.pool.geometry()))?;
        // What was captured before the rules came has every bit, and is not judged yet.
        let judged = capture.counts().lanes;
        let (reader, beginning) = capture.seat(options, &memory.region, ask.from_the_first)?;
        let from = match ask.from_the_first {
            true => judged.iter().map(|lane| lane.captured).collect(),
            false => beginning.starts.clone(),
        };
        let seat = SeatInlet {
            facts: capture.facts.clone(),
            pool: capture.pool.clone(),
            control: memory.region,
            wake: capture.readers_wake.clone(),
            policy: options.policy,
            wanted: Wanted {
                mask: share.mask,
                place,
                filter: share.filter.to_entries().into(),
                from,
            },
        };
        let files = InletFiles {
            pool: capture.pool_file(),
            control: memory.file,
            wake: capture.readers_wake.clone(),
        };
        let inlet = Inlet {
            capture: at,
            reader,
            baseline: beginning.counts,
            starts: beginning.starts,
        };
        Ok(Made { inlet, seat, files })
    }

    /// Gives every source the rules that follow from who sits where.
    pub(super) fn classify(&mut self) -> Result<Vec<Vec<Place>>, AttachError> {
        let rules = self.membership.rules();
        let mut places = Vec::new();
        for capture in &mut self.captures {
            let refused =
                |error: ringtap_pool::source::SourceError, device: &str| AttachError::Source {
                    device: device.to_owned(),
                    reason: error.to_string(),
                };
            let of_one = capture.classify(&rules);
            places.push(of_one.map_err(|error| refused(error, &capture.facts.device))?);
        }
        Ok(places)
    }

    fn give_back<'a>(&mut self, inlets: impl IntoIterator<Item = &'a Inlet>) {
        for inlet in inlets {
            let capture = &mut self.captures[inlet.capture];
            capture.distributor.remove_reader(inlet.reader);
        }
    }

    /// Takes a seat back, and all that its reader holds.
    pub(crate) fn leave(&mut self, id: SeatId) {
        self.note_unordered(id);
        self.membership.leave(id);
        if let Some(mut seat) = self.seats.taken.remove(&id) {
            self.seats.departed_slow_reader += self.lost_by(&seat);
            // Its thread ends before the chunks that it reads are given back.
            drop(seat.relay.take());
            self.give_back(&seat.inlets);
            tracing::info!(seat = id.0, group = seat.group, reader = seat.name, "left");
        }
        if let Err(error) = self.classify() {
            tracing::error!("the rules without a reader that left: {error}");
        }
    }

    /// Changes a seat's own filter.
    pub(crate) fn set_filter(
        &mut self,
        id: SeatId,
        filter: Program,
    ) -> Result<Vec<Wanted>, AttachError> {
        let seat = self.seats.taken.get(&id).ok_or(AttachError::NoSeat)?;
        let group = self.membership.group(&seat.group).cloned();
        let group = group.ok_or(AttachError::NoSeat)?;
        let before = self.membership.set_filter(id, filter);
        let before = before.map_err(|full| refusal(full, &group))?;
        let places = match self.classify() {
            Ok(places) => places,
            Err(error) => {
                let _restored = self.membership.set_filter(id, before);
                let _restored = self.classify();
                return Err(error);
            }
        };
        let share = self.membership.share(id).ok_or(AttachError::NoSeat)?;
        let inlets = self.seats.inlets(id).iter();
        let wanted: Vec<_> = inlets
            .map(|inlet| {
                let at = inlet.capture;
                let lanes = self.captures[at].counts().lanes;
                Wanted {
                    mask: share.mask,
                    place: place(&share, &places[at]),
                    filter: share.filter.to_entries().into(),
                    from: lanes.iter().map(|lane| lane.captured).collect(),
                }
            })
            .collect();
        if let Some(seat) = self.seats.taken.get_mut(&id) {
            seat.place = wanted
                .first()
                .map_or(Place::Source, |wanted| wanted.place.clone());
            if let Some(relay) = &seat.relay {
                relay.set_wanted(wanted.clone());
                // What the relay hands on is judged already.
                return Ok(wanted.iter().map(relay::judged).collect());
            }
        }
        Ok(wanted)
    }

    /// Changes how many chunks of a lane a seat may hold.
    pub(crate) fn set_credit(&mut self, id: SeatId, chunks: u32) -> Result<(), AttachError> {
        let seat = self.seats.taken.get_mut(&id).ok_or(AttachError::NoSeat)?;
        let group = self
            .membership
            .group(&seat.group)
            .ok_or(AttachError::NoSeat)?;
        if let Some(allowed) = group.credit_chunks.filter(|allowed| chunks > *allowed) {
            return Err(too_much("credit", group, chunks, allowed));
        }
        seat.credit_chunks = Some(chunks);
        for inlet in &seat.inlets {
            let capture = &mut self.captures[inlet.capture];
            capture.distributor.set_credit(inlet.reader, chunks);
        }
        Ok(())
    }
}

fn too_much(what: &'static str, group: &Group, asked: u32, allowed: u32) -> AttachError {
    AttachError::TooMuch {
        what,
        group: group.name.clone(),
        asked: asked.into(),
        allowed: allowed.into(),
    }
}

fn refusal(full: Full, group: &Group) -> AttachError {
    match full {
        Full::NoGroup => AttachError::NoSeat,
        Full::Members(allowed) => too_much("readers", group, allowed + 1, allowed),
        Full::NoBit => too_much("readers of balanced groups", group, 64, 63),
        Full::Filter => AttachError::Filter(group.name.clone()),
    }
}
