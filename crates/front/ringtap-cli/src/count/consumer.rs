// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts packets and does the work per packet.

use anyhow::Result;
use ringtap::{Batch, Capture, Counters, Packet};
use ringtap_explain::text::grouped;
use ringtap_ipc::time::now_ns;
use ringtap_packet::stamp::{self, StampOrder};
use serde_json::json;

use super::latency::Latency;
use super::work::Work;
use crate::reading::{self, Extra, Reading};
use crate::session::{BatchConsumer, Flow};

pub(crate) struct CountReader<'a> {
    pub(crate) reading: Reading<'a>,
    pub(crate) extras: Extras,
}

#[derive(Default)]
pub(crate) struct Extras {
    pub(super) work: Option<Work>,
    pub(super) latency: Option<Latency>,
    pub(super) stamps: Option<StampOrder>,
    pub(super) since_sending: Option<Latency>,
}

impl Extras {
    fn none(&self) -> bool {
        self.work.is_none() && self.latency.is_none() && self.stamps.is_none()
    }

    #[inline]
    fn packet(&mut self, packet: Packet<'_>) {
        // Before the work, which does not count as latency.
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
            stamps.add(stamp.sequence);
            if let Some(latency) = &mut self.since_sending {
                latency.packet(stamp.time_ns, now_ns);
            }
        }
    }

    fn results(&self) -> Vec<Extra> {
        let results = [
            self.latency.as_ref().map(Latency::result),
            self.since_sending.as_ref().map(Latency::result),
            self.stamps.as_ref().map(stamps_result),
            self.work.as_ref().map(Work::result),
        ];
        results.into_iter().flatten().collect()
    }
}

impl CountReader<'_> {
    /// Prints the final counters and the results of the extra work.
    pub(crate) fn finish(&self) -> Result<Counters> {
        let mut extras = self.extras.results();
        extras.extend(self.reading.capture.order().map(reading::order_kept));
        self.reading.finish(&extras)
    }
}

impl BatchConsumer for CountReader<'_> {
    // A function of its own: the loop over the packets needs all registers.
    #[inline(never)]
    fn batch(&mut self, batch: &Batch) -> Result<Flow> {
        if self.extras.none() {
            return self.reading.batch(batch, |_, _| Ok(Flow::Go));
        }
        let extras = &mut self.extras;
        self.reading.batch(batch, |packet, _| {
            extras.packet(packet);
            Ok(Flow::Go)
        })
    }

    fn capture(&mut self) -> &mut Capture {
        &mut self.reading.capture
    }

    fn show(&mut self) -> Result<()> {
        self.reading.show()
    }

    fn tick(&mut self) -> Result<Flow> {
        self.reading.tick()
    }
}

fn stamps_result(stamps: &StampOrder) -> Extra {
    let text = format!(
        "stamps: {} packets from number {}, {} missing, {} out of order",
        grouped(stamps.packets),
        stamps.first,
        grouped(stamps.missing),
        grouped(stamps.out_of_order)
    );
    let figures = json!({"packets": stamps.packets, "first": stamps.first, "missing": stamps.missing,
                         "out_of_order": stamps.out_of_order});
    Extra::new("stamps", text, figures)
}
