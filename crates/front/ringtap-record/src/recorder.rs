// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes each packet to the file, with the number of packets lost before it.
//!
//! Invariants
//! - A packet counts as delivered once the writer has taken it. If the write buffer is lost, its
//!   packets count as not written instead.

use std::ops::ControlFlow;
use std::path::Path;
use std::{mem, slice};

use ringtap::{AllCounters, Batch, Capture, Counters, Facts, Packet as PoolPacket, flag};
use ringtap_file::write::FilePacket;
use ringtap_file::{FileInterface, PacketDirection, Statistics};
use ringtap_filter::LinkType;
use ringtap_index::{FollowOutcome, IndexFollower};
use ringtap_ipc::time::now_ns;
use ringtap_pool::counters::TERMS;
use ringtap_pool::number::to_usize;

use crate::closed::ClosedFiles;
use crate::error::{RecordError, WriteError};
use crate::events::{EventTotals, Events};
use crate::machine::origin;
use crate::note::Note;
use crate::options::RecordOptions;
use crate::totals::{PacketTotals, WrittenFiles};
use crate::writer::{FileNext, Writer};

/// The steps of a recording, for programs with a loop of their own.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use ringtap::Next;
/// use ringtap_record::{RecordOptions, Recorder};
///
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("own.pcapng").display().to_string();
/// let mut capture = ringtap::open("sim:max?burst=10")?;
/// let mut recorder = Recorder::new(&capture, &RecordOptions::to_file(file), None)?;
/// let read = loop {
///     let step = match capture.next(Some(Duration::from_secs(1)))? {
///         Next::Batch(batch) => recorder.batch(&mut capture, &batch),
///         Next::Empty => recorder.tick(&capture),
///         Next::Ended => break Ok(()),
///     };
///     match step {
///         Ok(flow) if flow.is_continue() => {}
///         ended => break ended.map(drop),
///     }
/// };
/// let (recorded, outcome) = recorder.finish(&mut capture, read);
/// outcome?;
/// assert_eq!(recorded.files.packets, 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recorder {
    writer: Writer,
    start_ns: u64,
    /// Commands that run for each closed file.
    commands: Option<ClosedFiles>,
    /// Writes the indexes of the files.
    index: Option<IndexFollower>,
    /// Only packets around events are written.
    events: Option<Events>,
    /// Per lane, what the next packet states of the time before it.
    unstated: Vec<Unstated>,
    /// Number of packets until the recording stops.
    left: u64,
    /// Packets that the capture delivered before.
    before: PacketTotals,
}

/// Losses and the last capture gap of a lane since its last packet in the file: a batch may have no packet
/// for this reader.
#[derive(Clone, Default)]
struct Unstated {
    dropped: u64,
    gap: Option<String>,
}

/// The result of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded {
    /// Totals of the files.
    pub files: WrittenFiles,
    /// Totals of events, if only they were recorded.
    pub events: Option<EventTotals>,
    /// Packets that a failed write lost in memory, counted as `dropped.not_written`; `None`: no write failed.
    pub not_written: Option<u64>,
    /// Notes for the user that the program has not taken before.
    pub notes: Vec<Note>,
}

impl Recorder {
    /// Creates the first file. `commands` are those of [`RecordOptions::start_commands`].
    ///
    /// # Errors
    ///
    /// - [`RecordError::Options`].
    /// - [`RecordError::Write`]: no such folder, no permission, no space; a name that `strftime` does not understand.
    /// - [`RecordError::Capture`]: the filter of events is not valid.
    pub fn new(
        capture: &Capture,
        options: &RecordOptions,
        commands: Option<ClosedFiles>,
    ) -> Result<Self, RecordError> {
        options.check()?;
        let start_ns = now_ns();
        let events = options
            .events
            .as_ref()
            .map(|events| Events::new(events, capture));
        let events = events.transpose()?;
        let before = capture.counters()?;
        let interfaces = interfaces(capture, &options.filter);
        let writer = Writer::create(options, origin(), interfaces, start_ns)?;
        let index = options.index.then(IndexFollower::start).transpose();
        let mut index = index.map_err(RecordError::Index)?;
        if let Some(index) = &mut index {
            index.begin(Path::new(writer.file()));
        }
        Ok(Recorder {
            writer,
            start_ns,
            commands,
            index,
            events,
            unstated: Vec::new(),
            left: options.stop_at.packets.unwrap_or(u64::MAX),
            before: PacketTotals {
                packets: before.delivered,
                wire_bytes: before.bytes,
            },
        })
    }

    /// Records the packets of a batch that pass the capture's filter. `Break`, as of every step: the recording has all
    /// that it may have.
    ///
    /// # Errors
    ///
    /// [`RecordError::Write`], [`RecordError::Capture`].
    pub fn batch(
        &mut self,
        capture: &mut Capture,
        batch: &Batch,
    ) -> Result<ControlFlow<()>, RecordError> {
        let lane = batch.lane().index();
        if self.unstated.len() <= lane {
            self.unstated.resize(lane + 1, Unstated::default());
        }
        let unstated = &mut self.unstated[lane];
        let dropped = batch.gap().map_or(0, |gap| gap.packets);
        unstated.dropped = unstated.dropped.saturating_add(dropped);
        if let Some(gap) = batch.capture_gap() {
            unstated.gap = Some(gap.to_string());
        }
        let interface = capture.source_of(batch.lane());
        let facts = capture.sources().nth(to_usize(interface));
        let source = (interface, facts.is_some_and(|it| it.time_from.is_some()));
        let mut packets = capture.packets(batch);
        while let Some(packet) = packets.next() {
            let packet = packet.map_err(|error| *error)?;
            let Unstated { dropped, gap } = mem::take(&mut self.unstated[lane]);
            let packet = FilePacket {
                dropped_before: dropped,
                comment: gap.as_deref(),
                ..to_file(packet, source)
            };
            let next = match &mut self.events {
                None => self.writer.packet(&packet)?,
                Some(events) => events.packet(&packet, &mut self.writer)?,
            };
            let flow = match next {
                FileNext::Continue => ControlFlow::Continue(()),
                FileNext::Rotate => self.next_file(&packets.all_counters()?)?,
                FileNext::Stop => ControlFlow::Break(()),
            };
            self.left -= 1;
            if self.left == 0 || flow.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Writes packets that have waited long, and begins the next file of a series in time. Call this when no packet
    /// waits.
    ///
    /// # Errors
    ///
    /// [`RecordError::Write`], [`RecordError::Capture`].
    pub fn idle(&mut self, capture: &Capture) -> Result<ControlFlow<()>, RecordError> {
        match self.writer.tick(now_ns())? {
            FileNext::Continue => Ok(ControlFlow::Continue(())),
            FileNext::Rotate => self.next_file(&capture.all_counters()?),
            FileNext::Stop => Ok(ControlFlow::Break(())),
        }
    }

    /// As [`Recorder::idle`]; also keeps the disk budget, and notices that no program reads standard output. Call
    /// this once a second, with or without packets.
    ///
    /// # Errors
    ///
    /// [`RecordError::Write`], [`RecordError::Capture`].
    pub fn tick(&mut self, capture: &Capture) -> Result<ControlFlow<()>, RecordError> {
        if self.idle(capture)?.is_break() || self.writer.keep_budget()? == FileNext::Stop {
            return Ok(ControlFlow::Break(()));
        }
        self.writer.require_a_reader()?;
        Ok(ControlFlow::Continue(()))
    }

    /// Begins an event, if only events are recorded; else begins the next file of a series; else writes what is in
    /// memory.
    ///
    /// # Errors
    ///
    /// [`RecordError::Write`], [`RecordError::Capture`].
    pub fn save(&mut self, capture: &Capture) -> Result<ControlFlow<()>, RecordError> {
        match &mut self.events {
            Some(events) => events.fire(&mut self.writer)?,
            None if self.writer.is_series() => return self.next_file(&capture.all_counters()?),
            None => self.writer.flush()?,
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The totals so far, including what is in memory.
    pub fn written(&self) -> WrittenFiles {
        self.writer.written()
    }

    /// Notes for the user since the last call: at most 64, later ones are left out.
    pub fn take_notes(&mut self) -> Vec<Note> {
        mem::take(&mut self.writer.notes)
    }

    /// Closes the last file with the final counters. `received` is why the program's loop ended; the second result is
    /// an error of it, or of closing the file.
    ///
    /// After an error the capture's counters are right, too. A program that has closed the pipe of standard output
    /// needs no more: this is no error.
    pub fn finish(
        &mut self,
        capture: &mut Capture,
        received: Result<(), RecordError>,
    ) -> (Recorded, Result<(), RecordError>) {
        let (received, closed) = match received {
            // The writer's own error, after which the file is closed.
            Err(RecordError::Write(error)) => (Ok(()), Err(error)),
            // After any other error, the buffer is written to the file.
            received => {
                let all = capture
                    .all_counters()
                    .map(|all| interface_statistics(self.start_ns, now_ns(), &all));
                let statistics = all.as_deref().unwrap_or_default();
                let closed = self.writer.finish(statistics);
                (received.and(all.map(drop).map_err(Into::into)), closed)
            }
        };
        if let Some(index) = &mut self.index {
            index.close();
        }
        self.close(self.writer.file().to_owned());
        let (not_written, outcome) = match closed {
            Ok(()) => (None, received),
            Err(error) => {
                let mut kept = self.before;
                kept += self.writer.in_files();
                // Packets outside of events were delivered, and left out on purpose.
                kept += self
                    .events
                    .as_ref()
                    .map(Events::left_out)
                    .unwrap_or_default();
                let lost = capture.keep_written(kept.packets, kept.wire_bytes);
                let outcome = match error {
                    WriteError::Closed { .. } => Ok(()),
                    error => Err(error.into()),
                };
                (Some(lost), outcome)
            }
        };
        let recorded = Recorded {
            files: self.writer.written(),
            events: self.events.as_ref().map(Events::totals),
            not_written,
            notes: self.take_notes(),
        };
        (recorded, outcome)
    }

    /// Waits until the indexes of all files are written, and the commands for closed files have ended.
    pub fn wait_for_commands(&mut self) {
        if let Some(index) = self.index.take() {
            let FollowOutcome { error, skipped, .. } = index.finish();
            if let Some(error) = error {
                let cause = error.to_string();
                self.writer.note(Note::NoIndex { cause });
            }
            if skipped > 0 {
                self.writer.note(Note::IndexSkipped { files: skipped });
            }
        }
        if let Some(note) = self.commands.as_mut().and_then(ClosedFiles::finish) {
            self.writer.note(note);
        }
    }

    /// Closes the file with these counters, and begins the next one.
    fn next_file(&mut self, counters: &AllCounters) -> Result<ControlFlow<()>, RecordError> {
        let (now_ns, file) = (now_ns(), self.writer.file().to_owned());
        let statistics = interface_statistics(self.start_ns, now_ns, counters);
        if self.writer.rotate(&statistics, now_ns)? == FileNext::Stop {
            return Ok(ControlFlow::Break(()));
        }
        if let Some(index) = &mut self.index {
            index.begin(Path::new(self.writer.file()));
        }
        self.close(file);
        Ok(ControlFlow::Continue(()))
    }

    /// Runs the command for a closed file.
    fn close(&mut self, file: String) {
        let commands = self.commands.as_mut();
        if let Some(note) = commands.and_then(|commands| commands.add(&file)) {
            self.writer.note(note);
        }
    }
}

fn to_file(packet: PoolPacket<'_>, (interface, has_nic_clock): (u32, bool)) -> FilePacket<'_> {
    let out = packet.slot().flags & flag::OUT != 0;
    FilePacket {
        interface,
        wire_length: packet.slot().wire_length,
        direction: if out {
            PacketDirection::Outbound
        } else {
            PacketDirection::Inbound
        },
        is_super: packet.slot().flags & flag::SUPER != 0,
        lacks_nic_time: has_nic_clock && packet.slot().flags & flag::NIC_TIME == 0,
        ..FilePacket::new(packet.slot().time_ns, packet.data)
    }
}

/// The counters since the start of the capture, as statistics of the file's interfaces: one for each
/// source. A hub that left gave no counters of single sources.
fn interface_statistics(start_ns: u64, time_ns: u64, all: &AllCounters) -> Vec<Statistics> {
    let sources = match &all.sources[..] {
        [] | [_] => slice::from_ref(&all.total),
        several => several,
    };
    let each = sources.iter();
    each.map(|counters| statistics(start_ns, time_ns, counters))
        .collect()
}

/// The counters since the start of the capture, as statistics of an interface.
pub(crate) fn statistics(start_ns: u64, time_ns: u64, counters: &Counters) -> Statistics {
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

/// Where sent packets were captured, and whose clock stamped packets, if not the host's.
fn comment(facts: &Facts) -> Option<String> {
    let clock = facts
        .time_from
        .as_ref()
        .map(|clock| format!("time stamps: {clock}"));
    let parts: Vec<_> = facts.sent_from.clone().into_iter().chain(clock).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Description of each source for the files.
fn interfaces(capture: &Capture, filter: &str) -> Vec<FileInterface> {
    let interface = |facts: &Facts| {
        let name = facts.interface.as_ref().unwrap_or(&facts.device);
        FileInterface {
            name: Some(name.clone()),
            comment: comment(facts),
            filter: Some(filter.to_owned()).filter(|filter| !filter.is_empty()),
            ..FileInterface::new(0, LinkType(facts.link_type), facts.snap_length)
        }
    };
    capture.sources().map(interface).collect()
}
