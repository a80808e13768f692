// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader in virtual time: how long each packet keeps it busy.
#![forbid(unsafe_code)]

use ringtap_pool::distributor::Distributor;
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::reader::{Next, Reader, Sleeper};

use super::ReaderOutcome;
use crate::sim::SimError;

/// When a packet was done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Note {
    pub(super) lane: u32,
    pub(super) flow: u32,
    pub(super) sequence: u64,
    pub(super) done_ps: u64,
}

/// A reader and its clock.
pub(super) struct Member {
    pub(super) id: ReaderId,
    reader: Reader,
    sleeper: Sleeper,
    /// Of packets that are its own.
    mask: u64,
    service_ps: u64,
    done_ps: Option<u64>,
    delivered: u64,
    bytes: u64,
    /// What gaps told of: losses, and packets of the lanes that were left out.
    lost: u64,
    /// When each packet was done with, if somebody wants to know.
    notes: Option<Vec<Note>>,
}

impl Member {
    pub(super) fn new(
        id: ReaderId,
        reader: Reader,
        mask: u64,
        service_ps: u64,
        keeps_order: bool,
    ) -> Self {
        Member {
            id,
            sleeper: reader.sleeper(),
            reader,
            mask,
            service_ps,
            done_ps: None,
            delivered: 0,
            bytes: 0,
            lost: 0,
            notes: keeps_order.then(Vec::new),
        }
    }

    /// When it is done with what it took.
    pub(super) fn done_ps(&self) -> Option<u64> {
        self.done_ps
    }

    /// It was woken, unless it is at work.
    pub(super) fn wake(&mut self, now_ps: u64) -> Result<(), SimError> {
        if self.done_ps.is_some() {
            return Ok(());
        }
        self.sleeper.disarm();
        self.read(now_ps)
    }

    /// Gives back what it is done with, and takes what there is, or sleeps.
    pub(super) fn read(&mut self, now_ps: u64) -> Result<(), SimError> {
        self.done_ps = None;
        let mut is_armed = false;
        loop {
            let found = self.reader.next();
            let batch = match found.map_err(|error| SimError::Run(error.to_string()))? {
                Next::Batch(batch) => batch,
                Next::Empty if !is_armed => {
                    self.sleeper.arm();
                    is_armed = true;
                    continue;
                }
                Next::Empty | Next::Ended => return Ok(()),
            };
            if is_armed {
                self.sleeper.disarm();
                is_armed = false;
            }
            self.lost += batch.gap().map_or(0, |gap| gap.packets);
            let lane = batch.lane().0;
            let mut done_ps = now_ps;
            for packet in batch.packets() {
                let packet = packet.map_err(|error| SimError::Run(error.to_string()))?;
                if packet.slot().mask & self.mask == 0 {
                    continue;
                }
                done_ps += self.service_ps;
                self.delivered += 1;
                self.bytes += u64::from(packet.slot().wire_length);
                if let Some(notes) = &mut self.notes {
                    notes.push(Note {
                        lane,
                        flow: packet.slot().hash().unwrap_or(0),
                        sequence: packet.sequence,
                        done_ps,
                    });
                }
            }
            if done_ps > now_ps {
                self.done_ps = Some(done_ps);
                return Ok(());
            }
        }
    }

    pub(super) fn take_notes(&mut self) -> Vec<Note> {
        self.notes.take().unwrap_or_default()
    }

    pub(super) fn outcome(&self, distributor: &Distributor) -> ReaderOutcome {
        let lanes = (0..distributor.geometry().lane_count).map(LaneId);
        let missed = lanes.map(|lane| distributor.missed(self.id, lane).packets);
        ReaderOutcome {
            reader: self.id,
            delivered: self.delivered,
            bytes: self.bytes,
            overrun: missed.sum(),
        }
    }
}
