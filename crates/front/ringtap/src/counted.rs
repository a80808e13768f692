// SPDX-License-Identifier: MIT OR Apache-2.0
//! Iterates over the packets of a batch and counts them.
//!
//! Invariants
//! - The iterator counts each packet that it gives or passes over. Packets that the program does not
//!   reach stay uncounted.

use ringtap_client::{Batch, LaneTally, Packets};
use ringtap_pool::counters::Counters;
use ringtap_pool::ids::LaneId;
use ringtap_pool::reader::Packet;

use crate::{AllCounters, Capture, Error};

/// The packets of a batch that pass the capture's filter; see [`Capture::packets`].
pub struct Counted<'a> {
    capture: &'a mut Capture,
    packets: Packets<'a>,
    lane: LaneId,
    /// The lane's counts with the packets given so far; a copy, so that the loop over the packets
    /// keeps it in registers.
    tally: LaneTally,
}

impl<'a> Counted<'a> {
    #[inline]
    pub(crate) fn new(capture: &'a mut Capture, batch: &'a Batch) -> Self {
        let lane = batch.lane();
        capture.tally.begin(batch);
        Counted {
            tally: *capture.tally.at(lane),
            capture,
            packets: batch.packets(),
            lane,
        }
    }

    /// The counters up to the packet that the iterator gave last.
    ///
    /// # Errors
    ///
    /// [`Error::Control`].
    pub fn counters(&mut self) -> Result<Counters, Error> {
        self.store();
        self.capture.counters()
    }

    /// As [`Counted::counters`], with those of each source and lane.
    ///
    /// # Errors
    ///
    /// [`Error::Control`].
    pub fn all_counters(&mut self) -> Result<AllCounters, Error> {
        self.store();
        self.capture.all_counters()
    }

    fn store(&mut self) {
        *self.capture.tally.at(self.lane) = self.tally;
    }
}

impl<'a> Iterator for Counted<'a> {
    /// The error is boxed to keep the item small.
    type Item = Result<Packet<'a>, Box<Error>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let classified = match self.packets.next()? {
                Ok(classified) => classified,
                Err(error) => return Some(Err(failed(*error))),
            };
            self.tally.count(&classified);
            if classified.is_ours() {
                return Some(Ok(classified.packet));
            }
        }
    }
}

#[cold]
fn failed(error: ringtap_pool::reader::RecvError) -> Box<Error> {
    Box::new(Error::Receive(error.into()))
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.store();
        self.capture.receiver.publish_progress(&self.capture.tally);
    }
}
