// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints a line for each packet.

use std::sync::Arc;

use anyhow::Result;
use ringtap::{Batch, Capture};
use ringtap_columns::{LaneLinks, LinePacket, PacketLine};

use crate::print;
use crate::reading::Reading;
use crate::session::{BatchConsumer, Flow};

pub(super) struct LineReader<'a> {
    pub(super) reading: Reading<'a>,
    links: Arc<LaneLinks>,
    lines: PacketLine,
    json: bool,
    text: String,
}

impl<'a> LineReader<'a> {
    pub(super) fn new(
        reading: Reading<'a>,
        links: Arc<LaneLinks>,
        lines: PacketLine,
        json: bool,
    ) -> Self {
        LineReader {
            reading,
            links,
            lines,
            json,
            text: String::new(),
        }
    }
}

impl BatchConsumer for LineReader<'_> {
    fn batch(&mut self, batch: &Batch) -> Result<Flow> {
        let lane = batch.lane();
        self.text.clear();
        let flow = self.reading.batch(batch, |packet, _| {
            let packet = LinePacket::from_lane(lane, &packet, &self.links);
            if self.json {
                self.lines.push_json(&packet, &mut self.text)?;
            } else {
                self.lines.push_text(&packet, &mut self.text);
            }
            Ok(Flow::Go)
        })?;
        if let Some(text) = self.text.strip_suffix('\n') {
            print::line(text)?;
        }
        Ok(flow)
    }

    fn capture(&mut self) -> &mut Capture {
        &mut self.reading.capture
    }

    fn show(&mut self) -> Result<()> {
        self.reading.show()
    }
}
