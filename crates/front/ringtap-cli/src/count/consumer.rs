// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `count` does with packets.
#![forbid(unsafe_code)]

use anyhow::Result;
use ringtap_client::{Batch, Tally};
use ringtap_packet::stamp;
use ringtap_pool::reader::Packet;

use super::latency::Latency;
use super::stamps::Stamps;
use super::work::Work;
use crate::reading::Reading;
use crate::report::now_ns;
use crate::session::{Consumer, Flow};

/// Counts, and does the work that was asked for.
pub(super) struct Counter<'a> {
    pub(super) reading: Reading<'a>,
    pub(super) extras: Extras,
}

/// What can be done to each packet besides counting it.
pub(super) struct Extras {
    pub(super) work: Option<Work>,
    pub(super) latency: Option<Latency>,
    pub(super) stamps: Option<Stamps>,
    pub(super) since_sending: Option<Latency>,
}

impl Extras {
    fn none(&self) -> bool {
        self.work.is_none() && self.latency.is_none() && self.stamps.is_none()
    }

    #[inline]
    fn packet(&mut self, packet: Packet<'_>) {
        // Before anything else: what is done with a packet is no part of its way here.
        let now_ns = match self.latency {
            Some(_) => now_ns(),
            None => 0,
        };
        if let Some(work) = &mut self.work {
            work.packet(packet.data, packet.slot().wire_length);
        }
        if let Some(latency) = &mut self.latency {
            latency.packet(packet.slot().time_ns, now_ns);
        }
        if let Some(stamps) = &mut self.stamps
            && let Some(stamp) = stamp::parse(packet.data)
        {
            stamps.sequence(stamp.sequence);
            if let Some(latency) = &mut self.since_sending {
                latency.packet(stamp.time_ns, now_ns);
            }
        }
    }

    fn summary(&self) -> Vec<String> {
        let lines = [
            self.latency.as_ref().map(Latency::summary),
            self.since_sending.as_ref().map(Latency::summary),
            self.stamps.as_ref().map(Stamps::summary),
            self.work.as_ref().map(Work::summary),
        ];
        lines.into_iter().flatten().collect()
    }
}

impl Counter<'_> {
    /// Prints the final counters and what else was asked for.
    pub(super) fn finish(self, more: Option<String>) -> Result<()> {
        let mut lines = self.extras.summary();
        lines.extend(more);
        self.reading.finish(&lines)?;
        Ok(())
    }
}

impl Consumer for Counter<'_> {
    fn batch(&mut self, batch: &Batch<'_>) -> Result<Flow> {
        if self.extras.none() {
            return self.reading.batch(batch, |_, _| Ok(()));
        }
        let extras = &mut self.extras;
        self.reading.batch(batch, |packet, _| {
            extras.packet(packet);
            Ok(())
        })
    }

    fn tally(&self) -> &Tally {
        self.reading.tally()
    }

    fn tick(&mut self) -> Result<Flow> {
        self.reading.tick()
    }
}
