// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes each packet to the file, with the number of packets lost before it.
//!
//! Invariants
//! - A packet counts as delivered once the writer has taken it. If the write buffer is lost, its
//!   packets count as not written instead.

use std::slice;

use anyhow::Result;
use ringtap::{AllCounters, Batch, Capture, Counters, Packet as PoolPacket, flag};
use ringtap_explain::text::{self, grouped};
use ringtap_file::write::FilePacket;
use ringtap_file::{PacketDirection, Statistics};
use ringtap_ipc::time::now_ns;
use ringtap_pool::counters::TERMS;
use ringtap_pool::number::to_usize;
use serde_json::json;

use super::error::WriteError;
use super::{ClosedFiles, Events, FileNext, Writer, WrittenFiles};
use crate::print;
use crate::reading::{self, Extra, Reading};
use crate::session::{BatchConsumer, Flow};
use crate::signals;

/// Records the packets of one reader.
pub(crate) struct Recorder<'a> {
    pub(crate) reading: Reading<'a>,
    pub(crate) writer: Writer,
    pub(crate) start_ns: u64,
    /// A line on the terminal shows the progress.
    pub(crate) progress: bool,
    /// Commands that run for each closed file.
    pub(crate) closed: Option<ClosedFiles>,
    /// Only packets around events are written.
    pub(crate) events: Option<Events>,
    /// Per lane, what the next packet states of the time before it.
    pub(crate) unstated: Vec<Unstated>,
}

/// Losses and the last capture gap of a lane since its last packet in the file: a batch may have no packet
/// for this reader.
#[derive(Clone, Default)]
pub(crate) struct Unstated {
    dropped: u64,
    gap: Option<String>,
}

impl Recorder<'_> {
    /// Closes the last file with the final counters and prints both.
    ///
    /// # Errors
    ///
    /// Why recording ended; the counters are printed before.
    pub(crate) fn finish(&mut self, received: Result<()>) -> Result<(Counters, WrittenFiles)> {
        if self.progress {
            print::over("");
        }
        let all = self.reading.capture.all_counters()?;
        let statistics = of_interfaces(self.start_ns, now_ns(), &all);
        let (received, closed) = match received {
            // The writer's own error, after which the file is closed.
            Err(error) if error.is::<WriteError>() => (Ok(()), Err(error)),
            // After any other error, the buffer is written to the file.
            received => (
                received,
                self.writer.finish(&statistics).map_err(Into::into),
            ),
        };
        if let Some(commands) = &mut self.closed {
            commands.add(self.writer.file());
        }
        match closed {
            Ok(written) => {
                let events = self.events.as_ref().map(Events::report);
                let told: Vec<_> = [written_files(&written)]
                    .into_iter()
                    .chain(events)
                    .collect();
                let counters = self.reading.finish(&told)?;
                received?;
                Ok((counters, written))
            }
            Err(error) => {
                let (counters, written) = self.finish_short()?;
                // The program that read the packets needs no more, like `head`.
                match error.downcast_ref() {
                    Some(WriteError::Closed { .. }) => Ok((counters, written)),
                    _ => Err(error),
                }
            }
        }
    }

    /// The final counters after an error that closed the files.
    fn finish_short(&mut self) -> Result<(Counters, WrittenFiles)> {
        let mut kept = self.writer.in_files();
        // Packets outside of events were delivered, and left out on purpose.
        kept += self
            .events
            .as_ref()
            .map(Events::left_out)
            .unwrap_or_default();
        let capture = &mut self.reading.capture;
        let lost = capture.keep_written(kept.packets, kept.wire_bytes);
        let told = match lost {
            0 => Vec::new(),
            _ => {
                let text = format!(
                    "lost in the write buffer: {}, counted as dropped.not_written",
                    text::packets(lost)
                );
                vec![Extra::new("not_written", text, json!({ "packets": lost }))]
            }
        };
        Ok((self.reading.finish(&told)?, self.writer.written()))
    }

    /// Waits for the commands of closed files.
    pub(crate) fn wait_for_commands(&mut self) {
        self.closed.iter_mut().for_each(ClosedFiles::finish);
    }

    fn show_progress(&self) -> Result<()> {
        let (written, counters) = (self.writer.written(), self.reading.capture.counters()?);
        let lost = grouped(counters.dropped.total());
        print::over(format_args!("{}, {lost} lost", summary(&written)));
        Ok(())
    }
}

impl BatchConsumer for Recorder<'_> {
    fn batch(&mut self, batch: &Batch) -> Result<Flow> {
        let Recorder {
            reading,
            writer,
            start_ns,
            closed,
            events,
            unstated,
            ..
        } = self;
        let lane = batch.lane().index();
        if unstated.len() <= lane {
            unstated.resize(lane + 1, Unstated::default());
        }
        let unstated = &mut unstated[lane];
        let dropped = batch.gap().map_or(0, |gap| gap.packets);
        unstated.dropped = unstated.dropped.saturating_add(dropped);
        if let Some(gap) = batch.capture_gap() {
            unstated.gap = Some(reading::gap_text(gap));
        }
        let interface = reading.capture.source_of(batch.lane());
        let facts = reading.capture.sources().nth(to_usize(interface));
        let source = (interface, facts.is_some_and(|it| it.time_from.is_some()));
        reading.batch(batch, |packet, counters| {
            let Unstated { dropped, gap } = std::mem::take(unstated);
            let packet = FilePacket {
                dropped_before: dropped,
                comment: gap.as_deref(),
                ..to_file(packet, source)
            };
            let next = match events {
                None => writer.packet(&packet)?,
                Some(events) => events.packet(&packet, writer)?,
            };
            match next {
                FileNext::Continue => Ok(Flow::Go),
                FileNext::Rotate => next_file(writer, closed, *start_ns, &counters.all_counters()?),
                FileNext::Stop => Ok(Flow::Stop),
            }
        })
    }

    fn capture(&mut self) -> &mut Capture {
        &mut self.reading.capture
    }

    fn idle(&mut self) -> Result<Flow> {
        let is_asked = signals::wants_output();
        let has_next = is_asked && self.events.is_none() && self.writer.is_series();
        match &mut self.events {
            Some(events) if is_asked => events.fire(&mut self.writer)?,
            None if is_asked && !has_next => self.writer.flush()?,
            _ => {}
        }
        match self.writer.tick(now_ns())? {
            FileNext::Stop => return Ok(Flow::Stop),
            FileNext::Continue if !has_next => return Ok(Flow::Go),
            _ => {}
        }
        let all = self.reading.capture.all_counters()?;
        next_file(&mut self.writer, &mut self.closed, self.start_ns, &all)
    }

    fn show(&mut self) -> Result<()> {
        self.reading.show()
    }

    fn tick(&mut self) -> Result<Flow> {
        if self.idle()? == Flow::Stop || self.writer.keep_budget()? == FileNext::Stop {
            return Ok(Flow::Stop);
        }
        self.writer.require_a_reader()?;
        if self.progress {
            self.show_progress()?;
            return Ok(Flow::Go);
        }
        self.reading.tick()
    }
}

/// Closes the file with these counters, and begins the next one.
fn next_file(
    writer: &mut Writer,
    closed: &mut Option<ClosedFiles>,
    start_ns: u64,
    counters: &AllCounters,
) -> Result<Flow> {
    let (now_ns, file) = (now_ns(), writer.file().to_owned());
    let statistics = of_interfaces(start_ns, now_ns, counters);
    if writer.rotate(&statistics, now_ns)? == FileNext::Stop {
        return Ok(Flow::Stop);
    }
    closed.iter_mut().for_each(|commands| commands.add(&file));
    Ok(Flow::Go)
}

fn to_file(packet: PoolPacket<'_>, (interface, has_nic_clock): (u32, bool)) -> FilePacket<'_> {
    let out = packet.slot().flags & flag::OUT != 0;
    FilePacket {
        interface,
        time_ns: packet.slot().time_ns,
        wire_length: packet.slot().wire_length,
        data: packet.data,
        direction: if out {
            PacketDirection::Outbound
        } else {
            PacketDirection::Inbound
        },
        dropped_before: 0,
        comment: None,
        is_super: packet.slot().flags & flag::SUPER != 0,
        lacks_nic_time: has_nic_clock && packet.slot().flags & flag::NIC_TIME == 0,
    }
}

/// The counters since the start of the capture, as statistics of the file's interfaces: one for each
/// source. A hub that left gave no counters of single sources.
fn of_interfaces(start_ns: u64, time_ns: u64, all: &AllCounters) -> Vec<Statistics> {
    let sources = match &all.sources[..] {
        [] | [_] => slice::from_ref(&all.total),
        several => several,
    };
    let each = sources.iter();
    each.map(|counters| statistics(start_ns, time_ns, counters))
        .collect()
}

/// The counters since the start of the capture, as statistics of an interface.
pub(super) fn statistics(start_ns: u64, time_ns: u64, counters: &Counters) -> Statistics {
    let dropped = &counters.dropped;
    // Losses after the NIC, which other tools all attribute to the operating system.
    let after_nic = dropped.total() - dropped.nic;
    let terms = TERMS
        .iter()
        .map(|term| format!("{}={}", term.name, term.count(counters)));
    let comment = format!(
        "counters: offered={} {} bytes={}; {}",
        counters.offered,
        terms.collect::<Vec<_>>().join(" "),
        counters.bytes,
        counters.balance(),
    );
    Statistics {
        time_ns,
        start_ns: Some(start_ns),
        end_ns: Some(time_ns),
        received: Some(counters.offered),
        dropped: Some(dropped.nic),
        filter_accepted: Some(counters.delivered + after_nic),
        os_dropped: Some(after_nic),
        delivered: Some(counters.delivered),
        comment: Some(comment),
    }
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
