// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow metering alone, without a capture, for the example `meter_rate`.

use ringtap_filter::Headers;
use ringtap_filter::hash::Link;

use crate::flows::{FlowMeter, FlowOptions, PACKETS_TOGETHER};
use crate::packet::{Dissected, Secret};
use crate::record::Record;

/// A flow meter, and totals of the records that it made.
pub struct MeterRun {
    meter: FlowMeter,
    secret: Secret,
    records: Vec<Record>,
    totals: MeterTotals,
}

/// Totals of flow records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterTotals {
    /// Number of records.
    pub records: u64,
    /// Packets in records.
    pub packets: u64,
    /// Bytes in records.
    pub bytes: u64,
}

impl MeterRun {
    /// A meter without flows.
    #[must_use]
    pub fn new(options: FlowOptions) -> Self {
        let secret = Secret::random();
        MeterRun {
            meter: FlowMeter::new(options, secret, None),
            secret,
            records: Vec::new(),
            totals: MeterTotals::default(),
        }
    }

    /// Parses and meters Ethernet frames with their times in nanoseconds, in groups as a worker does.
    pub fn meter<'a>(&mut self, frames: impl Iterator<Item = (u64, &'a [u8])>) {
        let mut together = Vec::with_capacity(PACKETS_TOGETHER);
        for (time_ns, frame) in frames {
            let wire = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            let (link, headers) = (Link::Ethernet, Headers::Inner);
            let packet = Dissected::new(time_ns, frame, wire, link, headers, &self.secret);
            if let Some(packet) = packet {
                together.push(packet);
            }
            if together.len() == PACKETS_TOGETHER {
                self.meter.packets(&mut together, &mut self.records);
                together.clear();
            }
        }
        self.meter.packets(&mut together, &mut self.records);
        self.count_records();
    }

    /// Ends all flows and returns the totals of all records.
    #[must_use]
    pub fn finish(mut self) -> MeterTotals {
        self.meter.finish(&mut self.records);
        self.count_records();
        self.totals
    }

    fn count_records(&mut self) {
        for record in self.records.drain(..) {
            if let Record::Flow(flow) = record {
                self.totals.records += 1;
                self.totals.packets += flow.packets();
                self.totals.bytes += flow.bytes();
            }
        }
    }
}
