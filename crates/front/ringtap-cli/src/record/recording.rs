// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes packets and signals to a recorder, and prints what it did.

use std::ops::ControlFlow;

use anyhow::{Error, Result};
use ringtap::{Batch, Capture, Counters};
use ringtap_explain::text::{self, grouped};
use ringtap_record::{EventTotals, Note, RecordError, Recorded, Recorder, WrittenFiles};
use serde_json::json;

use super::args::with_flags;
use crate::print;
use crate::reading::{Extra, Reading};
use crate::session::{BatchConsumer, Flow};
use crate::signals;

/// Records the packets of one reader.
pub(crate) struct Recording<'a> {
    pub(crate) reading: Reading<'a>,
    pub(crate) recorder: Recorder,
    /// A line on the terminal shows the progress.
    pub(crate) progress: bool,
}

impl Recording<'_> {
    /// Closes the last file with the final counters and prints both.
    ///
    /// # Errors
    ///
    /// Why recording ended; the counters are printed before.
    pub(crate) fn finish(&mut self, received: Result<()>) -> Result<(Counters, Recorded)> {
        if self.progress {
            print::over("");
        }
        // Another error than the recorder's is kept until the file is closed.
        let (received, other) = match received.map_err(Error::downcast) {
            Ok(()) => (Ok(()), Ok(())),
            Err(Ok(error)) => (Err(error), Ok(())),
            Err(Err(other)) => (Ok(()), Err(other)),
        };
        let capture = &mut self.reading.capture;
        let (recorded, outcome) = self.recorder.finish(capture, received);
        recorded.notes.iter().for_each(show);
        let counters = self.reading.finish(&extras(&recorded))?;
        outcome.map_err(plain)?;
        other?;
        Ok((counters, recorded))
    }

    /// Waits for the commands of closed files.
    pub(crate) fn wait_for_commands(&mut self) {
        self.recorder.wait_for_commands();
        self.recorder.take_notes().iter().for_each(show);
    }

    /// Takes one step, and prints the notes of it.
    fn step(
        &mut self,
        step: impl FnOnce(&mut Recorder, &mut Capture) -> Result<ControlFlow<()>, RecordError>,
    ) -> Result<Flow> {
        let flow = step(&mut self.recorder, &mut self.reading.capture);
        self.recorder.take_notes().iter().for_each(show);
        Ok(match flow? {
            ControlFlow::Continue(()) => Flow::Go,
            ControlFlow::Break(()) => Flow::Stop,
        })
    }

    fn show_progress(&self) -> Result<()> {
        let (written, counters) = (self.recorder.written(), self.reading.capture.counters()?);
        let lost = grouped(counters.dropped.total());
        print::over(format_args!("{}, {lost} lost", summary(&written)));
        Ok(())
    }
}

impl BatchConsumer for Recording<'_> {
    fn batch(&mut self, batch: &Batch) -> Result<Flow> {
        self.reading.note_gap(batch);
        self.step(|recorder, capture| recorder.batch(capture, batch))
    }

    fn capture(&mut self) -> &mut Capture {
        &mut self.reading.capture
    }

    fn idle(&mut self) -> Result<Flow> {
        if signals::wants_output() && self.step(|it, capture| it.save(capture))? == Flow::Stop {
            return Ok(Flow::Stop);
        }
        self.step(|recorder, capture| recorder.idle(capture))
    }

    fn show(&mut self) -> Result<()> {
        self.reading.show()
    }

    fn tick(&mut self) -> Result<Flow> {
        if self.idle()? == Flow::Stop || self.step(|it, capture| it.tick(capture))? == Flow::Stop {
            return Ok(Flow::Stop);
        }
        if self.progress {
            self.show_progress()?;
            return Ok(Flow::Go);
        }
        self.reading.tick()
    }
}

/// Prints a note, and few of those that packets cause.
fn show(note: &Note) {
    let line = format!("ringtap: {}", with_flags(note));
    match note {
        Note::ShortWindow { .. } => print::from_peer(print::NETWORK, line),
        _ => print::note(line),
    }
}

/// The error of the capture itself, which has an exit status, instead of the recorder's.
pub(crate) fn plain(error: RecordError) -> Error {
    match error {
        RecordError::Capture(error) => error.into(),
        other => Error::msg(with_flags(other)),
    }
}

/// The lines beside the final counters.
fn extras(recorded: &Recorded) -> Vec<Extra> {
    match recorded.not_written {
        None => [written_files(&recorded.files)]
            .into_iter()
            .chain(recorded.events.map(events))
            .collect(),
        Some(0) => Vec::new(),
        Some(lost) => {
            let text = format!(
                "lost in the write buffer: {}, counted as dropped.not_written",
                text::packets(lost)
            );
            vec![Extra::new("not_written", text, json!({ "packets": lost }))]
        }
    }
}

fn events(totals: EventTotals) -> Extra {
    let EventTotals {
        events,
        packets_outside,
    } = totals;
    let text = format!(
        "{}; not written, because outside of them: {}",
        text::count(events, "event"),
        text::packets(packets_outside)
    );
    let figures = json!({"events": events, "packets_outside": packets_outside});
    Extra::new("events", text, figures)
}

fn written_files(written: &WrittenFiles) -> Extra {
    let figures = json!({"files": written.files, "file": written.file, "packets": written.packets,
                         "size_bytes": written.size_bytes});
    Extra::new("files", summary(written), figures)
}

fn summary(written: &WrittenFiles) -> String {
    let WrittenFiles {
        files,
        file,
        packets,
        size_bytes,
    } = written;
    let (packets, size) = (text::packets(*packets), text::size(*size_bytes));
    match files {
        1 => format!("{packets}, {size} in {file}"),
        _ => format!("{packets}, {size} in {files} files, the last is {file}"),
    }
}
