// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes packets to files of columns.

use anyhow::Result;
use ringtap::{Batch, Capture, Counters};
use ringtap_columns::{PacketColumns, TableFiles};
use ringtap_explain::text;
use serde_json::json;

use crate::reading::{Extra, Reading};
use crate::session::{BatchConsumer, Flow};

/// Packets that are encoded together.
const ROWS: usize = 32_768;

pub(super) struct TableReader<'a> {
    pub(super) reading: Reading<'a>,
    columns: PacketColumns,
    files: TableFiles,
}

impl<'a> TableReader<'a> {
    pub(super) fn new(reading: Reading<'a>, columns: PacketColumns, files: TableFiles) -> Self {
        TableReader {
            reading,
            columns,
            files,
        }
    }

    fn write(&mut self) -> Result<()> {
        if !self.columns.is_empty() {
            self.files.write(&self.columns.finish()?)?;
        }
        Ok(())
    }

    /// Completes the files, and prints the counters; packets of files that failed count as not written.
    pub(super) fn finish(&mut self, received: Result<()>) -> Result<Counters> {
        let written = received
            .and_then(|()| self.write())
            .and_then(|()| Ok(self.files.finish()?));
        let (rows, bytes) = self.files.written();
        if written.is_err() {
            self.reading.capture.keep_written(rows, bytes);
        }
        let files = self.files.files();
        let text = format!(
            "written: {} in {}",
            text::packets(rows),
            text::count(files, "file")
        );
        let figures = json!({"packets": rows, "files": files});
        let counters = self
            .reading
            .finish(&[Extra::new("written", text, figures)])?;
        written?;
        Ok(counters)
    }
}

impl BatchConsumer for TableReader<'_> {
    fn batch(&mut self, batch: &Batch) -> Result<Flow> {
        let lane = batch.lane();
        let columns = &mut self.columns;
        let flow = self.reading.batch(batch, |packet, _| {
            columns.push(lane, &packet);
            Ok(Flow::Go)
        })?;
        if self.columns.len() >= ROWS {
            self.write()?;
        }
        Ok(flow)
    }

    fn capture(&mut self) -> &mut Capture {
        &mut self.reading.capture
    }

    fn show(&mut self) -> Result<()> {
        self.reading.show()
    }

    fn tick(&mut self) -> Result<Flow> {
        self.write()?;
        self.files.tick()?;
        self.reading.tick()
    }
}
