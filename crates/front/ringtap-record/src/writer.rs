// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes packets to one file or to a series of files.
//!
//! Invariants
//! - Every pcapng file begins with a section and its interfaces, and ends with statistics.
//! - At most `file_count` files of the series exist at any time.
//! - The disk budget is checked for each new file and with each tick.

use jiff::tz::TimeZone;
use ringtap_file::write::{self, FilePacket, Origin, classic};
use ringtap_file::{FileInterface, Format, Statistics};
use ringtap_filter::LinkType;

use crate::{
    error::WriteError,
    names::Names,
    note::Note,
    options::RecordOptions,
    output::{Output, WriteMode},
    ring::FilesOnDisk,
    totals::{FileContent, PacketTotals, WrittenFiles},
};

/// Longest time in nanoseconds that a packet stays in the buffer while few packets arrive.
const FLUSH_NS: u64 = 1_000_000_000;

/// Most notes that wait for the program to take them.
const MAX_NOTES: usize = 64;

/// The call that the writer expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a file that is full has to be rotated"]
pub(crate) enum FileNext {
    Continue,
    /// [`Writer::rotate`]: the file has reached its size or its age.
    Rotate,
    /// [`Writer::finish`]: the recording has all that it may have.
    Stop,
}

/// Records packets.
pub(crate) struct Writer {
    options: RecordOptions,
    /// Limits of one file; the largest number if there is none.
    max_bytes: u64,
    max_packets: u64,
    /// The interfaces of each file, in the order of their numbers.
    interfaces: Vec<FileInterface>,
    origin: Origin,
    names: Names,
    ring: FilesOnDisk,
    output: Output,
    /// Number of files, with the open one.
    files: u64,
    /// Content of the closed files.
    closed: FileContent,
    opened_ns: u64,
    flushed_ns: u64,
    /// Packets whose time the format does not hold.
    unfit_times: u64,
    /// Notes that the program has not taken yet.
    pub(crate) notes: Vec<Note>,
}

impl Writer {
    /// Creates the first file, with `origin` in its header; its name and age start at `now_ns`.
    ///
    /// # Errors
    ///
    /// - [`WriteError::Pattern`]: `strftime` does not understand the name.
    /// - [`WriteError::Create`], [`WriteError::Write`]: no such folder, no permission, no space.
    pub(crate) fn create(
        options: &RecordOptions,
        origin: Origin,
        interfaces: Vec<FileInterface>,
        now_ns: u64,
    ) -> Result<Self, WriteError> {
        let mut names = Names::new(&options.file, options.is_series(), TimeZone::system());
        let format = options.format();
        if format == Format::Pcap {
            require_one_link_type(&options.file, &interfaces)?;
        }
        let mode = WriteMode::start(options).map_err(|cause| WriteError::Create {
            file: options.file.clone(),
            cause,
        })?;
        let mut ring = FilesOnDisk::new(options, &names);
        let name = names.next(now_ns)?;
        ring.begin(&name)?;
        if !ring.has_room(0, options.size_limit().unwrap_or(0))? {
            return Err(WriteError::Budget { file: name });
        }
        let output = Output::create(&name, format, mode)?;
        let mut writer = Self {
            options: options.clone(),
            max_bytes: options
                .size_limit()
                .or(options.stop_at.size_bytes)
                .or(options.max_total)
                .unwrap_or(u64::MAX),
            max_packets: options.file_packets.unwrap_or(u64::MAX),
            interfaces,
            origin,
            names,
            ring,
            output,
            files: 0,
            closed: FileContent::default(),
            opened_ns: now_ns,
            flushed_ns: now_ns,
            unfit_times: 0,
            notes: Vec::new(),
        };
        writer.begin(now_ns)?;
        Ok(writer)
    }

    /// Checks whether a program still reads the pipe, if packets go into one.
    ///
    /// # Errors
    ///
    /// [`WriteError::Closed`]: the reading end is closed.
    pub(crate) fn require_a_reader(&self) -> Result<(), WriteError> {
        self.output.require_a_reader()
    }

    /// Appends a packet.
    ///
    /// # Errors
    ///
    /// [`WriteError::Write`] and similar: the file is truncated to whole packets and accepts no
    /// more; buffered packets are lost.
    #[inline]
    pub(crate) fn packet(&mut self, packet: &FilePacket<'_>) -> Result<FileNext, WriteError> {
        let format = self.output.format();
        let buffer = self.output.buffer(write::packet_room(packet.data.len()))?;
        append(buffer, packet, format);
        if format == Format::Pcap && !classic::holds_time(packet.time_ns) {
            self.unfit_times += 1;
        }
        self.output.count(PacketTotals {
            packets: 1,
            wire_bytes: packet.wire_length.into(),
        });
        let is_full =
            self.output.size_bytes() >= self.max_bytes || self.output.packets() >= self.max_packets;
        if is_full {
            Ok(self.full())
        } else {
            Ok(FileNext::Continue)
        }
    }

    /// Appends packets that are in the form of the file already.
    pub(crate) fn append(&mut self, bytes: &[u8], holds: PacketTotals) -> Result<(), WriteError> {
        let buffer = self.output.buffer(bytes.len())?;
        buffer.extend_from_slice(bytes);
        self.output.count(holds);
        Ok(())
    }

    /// Action after a full file.
    #[cold]
    fn full(&self) -> FileNext {
        let files = self.options.stop_at.files.map_or(u64::MAX, u64::from);
        if self.is_series() && self.files < files {
            FileNext::Rotate
        } else {
            FileNext::Stop
        }
    }

    /// Flushes packets that have waited long. Call this often, also while no packets arrive.
    pub(crate) fn tick(&mut self, now_ns: u64) -> Result<FileNext, WriteError> {
        let interval_ns = if self.options.packet_buffered || self.options.file == "-" {
            0
        } else {
            FLUSH_NS
        };
        if now_ns.saturating_sub(self.flushed_ns) >= interval_ns {
            self.flushed_ns = now_ns;
            if !self.output.is_flushed() {
                self.output.flush()?;
            }
        }
        let age_ns = now_ns.saturating_sub(self.opened_ns);
        match self.options.file_seconds {
            Some(limit) if age_ns >= u64::from(limit) * 1_000_000_000 => Ok(self.full()),
            _ => Ok(FileNext::Continue),
        }
    }

    /// Keeps the disk budget: deletes the oldest files; returns [`FileNext::Stop`] if that is not enough.
    pub(crate) fn keep_budget(&mut self) -> Result<FileNext, WriteError> {
        self.after_budget(0)
    }

    /// As [`keep_budget`](Self::keep_budget), with room for a next file of this size.
    fn after_budget(&mut self, next_bytes: u64) -> Result<FileNext, WriteError> {
        if self.ring.has_room(self.output.size_bytes(), next_bytes)? {
            return Ok(FileNext::Continue);
        }
        self.note(Note::SpaceUsed);
        Ok(FileNext::Stop)
    }

    /// Closes the file with the statistics of each interface and starts the next one of the series; returns
    /// [`FileNext::Stop`], and does neither, if there is no space for it.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and [`WriteError::Delete`] in a ring.
    pub(crate) fn rotate(
        &mut self,
        statistics: &[Statistics],
        now_ns: u64,
    ) -> Result<FileNext, WriteError> {
        if self.after_budget(self.options.size_limit().unwrap_or(0))? == FileNext::Stop {
            return Ok(FileNext::Stop);
        }
        self.end(statistics)?;
        self.ring.close(self.output.size_bytes());
        let name = self.names.next(now_ns)?;
        self.ring.begin(&name)?;
        let closed = self.output.content();
        self.output.next(&name)?;
        self.closed += closed;
        self.begin(now_ns)?;
        Ok(FileNext::Continue)
    }

    /// Closes the last file with the statistics of each interface.
    pub(crate) fn finish(&mut self, statistics: &[Statistics]) -> Result<(), WriteError> {
        self.end(statistics)?;
        if self.unfit_times > 0 {
            self.note(Note::LateTimes {
                packets: self.unfit_times,
            });
        }
        Ok(())
    }

    /// Keeps a note for the program.
    pub(crate) fn note(&mut self, note: Note) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        }
    }

    /// Writes the buffer to the file.
    pub(crate) fn flush(&mut self) -> Result<(), WriteError> {
        self.output.flush()
    }

    /// Name of the open file.
    pub(crate) fn file(&self) -> &str {
        self.output.name()
    }

    /// Format of the files.
    pub(crate) fn format(&self) -> Format {
        self.output.format()
    }

    /// Whether [`Writer::rotate`] begins another file.
    pub(crate) fn is_series(&self) -> bool {
        self.options.is_series()
    }

    /// The totals so far, including the buffer.
    pub(crate) fn written(&self) -> WrittenFiles {
        let mut all = self.closed;
        all += self.output.content();
        WrittenFiles {
            files: self.files,
            file: self.file().to_owned(),
            packets: all.totals.packets,
            size_bytes: all.size_bytes,
        }
    }

    /// Packets in files, without those in memory.
    pub(crate) fn in_files(&self) -> PacketTotals {
        let mut all = self.closed.totals;
        all += self.output.in_file();
        all
    }

    fn begin(&mut self, now_ns: u64) -> Result<(), WriteError> {
        self.opened_ns = now_ns;
        self.flushed_ns = now_ns;
        self.files += 1;
        let format = self.output.format();
        let buffer = self.output.buffer(0)?;
        match format {
            Format::Pcap => {
                let first = self.interfaces.first();
                let link_type = first.map_or(LinkType::ETHERNET, |first| first.link_type);
                classic::file_header(buffer, link_type);
            }
            Format::Pcapng => {
                write::section(buffer, &self.origin);
                for interface in &self.interfaces {
                    write::interface(buffer, interface, self.origin.os.as_deref());
                }
            }
        }
        // At once, so that a program that follows the file or pipe has the header.
        self.output.flush()
    }

    fn end(&mut self, statistics: &[Statistics]) -> Result<(), WriteError> {
        let statistics = match self.output.format() {
            Format::Pcap => &[],
            Format::Pcapng => statistics,
        };
        for (interface, statistics) in (0..).zip(statistics) {
            write::statistics(self.output.buffer(1024)?, interface, statistics);
        }
        self.output.flush()
    }
}

/// Appends a packet to a buffer.
#[inline]
pub(crate) fn append(buffer: &mut Vec<u8>, packet: &FilePacket<'_>, format: Format) {
    match format {
        Format::Pcapng => write::packet(buffer, packet),
        Format::Pcap => classic::packet(buffer, packet),
    }
}

/// Fails if a pcap file, which has one link type, would need several.
fn require_one_link_type(file: &str, interfaces: &[FileInterface]) -> Result<(), WriteError> {
    let mut types = interfaces.iter().map(|interface| interface.link_type);
    let first = types.next();
    if types.all(|other| Some(other) == first) {
        Ok(())
    } else {
        Err(WriteError::LinkTypes {
            file: file.to_owned(),
        })
    }
}
