// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes packets to one file or to a series of files.
//!
//! Invariants
//! - Every file begins with a section and an interface block, and ends with statistics.
//! - At most `file_count` files of the series exist at any time.

use std::{fs, io};

use jiff::tz::TimeZone;
use ringtap_file::write::{self, FilePacket, Origin};
use ringtap_file::{Interface, Statistics};

use super::{
    error::WriteError,
    names::{FileRing, Names},
    options::FileOptions,
    output::Output,
};

/// Longest time in nanoseconds that a packet stays in the buffer while few packets arrive.
const FLUSH_NS: u64 = 1_000_000_000;

/// The call that the writer expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a file that is full has to be rotated"]
pub(crate) enum FileNext {
    Continue,
    /// [`Writer::rotate`]: the file has reached its size or its age.
    Rotate,
}

/// Totals of all files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenFiles {
    pub(crate) files: u64,
    /// Name of the last file.
    pub(crate) file: String,
    pub(crate) packets: u64,
    pub(crate) size_bytes: u64,
}

/// Records packets.
pub(crate) struct Writer {
    options: FileOptions,
    /// The interfaces of each file, in the order of their numbers.
    interfaces: Vec<Interface>,
    origin: Origin,
    names: Names,
    ring: FileRing,
    output: Output,
    /// `size_bytes` counts closed files only.
    written: WrittenFiles,
    /// Packets in closed files, and their bytes on the wire.
    closed: (u64, u64),
    opened_ns: u64,
    flushed_ns: u64,
}

impl Writer {
    /// Creates the first file, with `origin` in its header; its name and age start at `now_ns`.
    ///
    /// # Errors
    ///
    /// - [`WriteError::Pattern`]: `strftime` does not understand the name.
    /// - [`WriteError::Create`], [`WriteError::Write`]: no such folder, no permission, no space.
    pub(crate) fn create(
        options: &FileOptions,
        origin: Origin,
        interfaces: Vec<Interface>,
        now_ns: u64,
    ) -> Result<Self, WriteError> {
        let mut names = Names::new(&options.file, options.is_series(), TimeZone::system());
        let earlier = options
            .file_count
            .map(|_| earlier_files(&options.file, &names));
        let mut ring = FileRing::with(earlier.unwrap_or_default());
        let output = next_output(options, &mut names, &mut ring, now_ns)?;
        let mut writer = Self {
            options: options.clone(),
            interfaces,
            origin,
            names,
            ring,
            output,
            written: WrittenFiles::default(),
            closed: (0, 0),
            opened_ns: now_ns,
            flushed_ns: now_ns,
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
        let buffer = self.output.buffer(write::packet_room(packet.data.len()))?;
        write::packet(buffer, packet);
        self.written.packets += 1;
        match self.options.file_size {
            Some(limit) if self.output.size_bytes() >= limit => Ok(FileNext::Rotate),
            _ => Ok(FileNext::Continue),
        }
    }

    /// Flushes packets that have waited long. Call this often, also while no packets arrive.
    pub(crate) fn tick(&mut self, now_ns: u64) -> Result<FileNext, WriteError> {
        let interval_ns = match self.options.packet_buffered || self.options.file == "-" {
            true => 0,
            false => FLUSH_NS,
        };
        if now_ns.saturating_sub(self.flushed_ns) >= interval_ns {
            self.flushed_ns = now_ns;
            if !self.output.is_flushed() {
                self.output.flush()?;
            }
        }
        let age_ns = now_ns.saturating_sub(self.opened_ns);
        match self.options.file_seconds {
            Some(limit) if age_ns >= u64::from(limit) * 1_000_000_000 => Ok(FileNext::Rotate),
            _ => Ok(FileNext::Continue),
        }
    }

    /// Closes the file with the statistics of each interface and starts the next one of the series.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and [`WriteError::Delete`] in a ring.
    pub(crate) fn rotate(
        &mut self,
        statistics: &[Statistics],
        now_ns: u64,
    ) -> Result<(), WriteError> {
        self.end(statistics)?;
        let next = next_output(&self.options, &mut self.names, &mut self.ring, now_ns)?;
        self.written.size_bytes += self.output.size_bytes();
        self.closed = self.in_files();
        self.output = next;
        self.begin(now_ns)
    }

    /// Closes the last file with the statistics of each interface; returns the totals.
    pub(crate) fn finish(&mut self, statistics: &[Statistics]) -> Result<WrittenFiles, WriteError> {
        self.end(statistics)?;
        Ok(self.written())
    }

    /// Writes the buffer to the file.
    pub(crate) fn flush(&mut self) -> Result<(), WriteError> {
        self.output.flush()
    }

    /// Name of the open file.
    pub(crate) fn file(&self) -> &str {
        &self.written.file
    }

    /// Whether [`Writer::rotate`] begins another file.
    pub(crate) fn is_series(&self) -> bool {
        self.options.is_series()
    }

    /// The totals so far, including the buffer.
    pub(crate) fn written(&self) -> WrittenFiles {
        WrittenFiles {
            size_bytes: self.written.size_bytes + self.output.size_bytes(),
            ..self.written.clone()
        }
    }

    /// Packets in files, without the buffer, and their bytes on the wire.
    pub(crate) fn in_files(&self) -> (u64, u64) {
        let (packets, wire_bytes) = self.output.in_file();
        (self.closed.0 + packets, self.closed.1 + wire_bytes)
    }

    fn begin(&mut self, now_ns: u64) -> Result<(), WriteError> {
        self.opened_ns = now_ns;
        self.flushed_ns = now_ns;
        self.written.files += 1;
        self.written.file = self.output.name().to_owned();
        let buffer = self.output.buffer(0)?;
        write::section(buffer, &self.origin);
        for interface in &self.interfaces {
            write::interface(buffer, interface, self.origin.os.as_deref());
        }
        // At once, so that a program that follows the file or pipe has the header.
        self.output.flush()
    }

    fn end(&mut self, statistics: &[Statistics]) -> Result<(), WriteError> {
        for (interface, statistics) in (0..).zip(statistics) {
            write::statistics(self.output.buffer(1024)?, interface, statistics);
        }
        self.output.flush()
    }
}

/// The files that earlier runs of this series left, oldest first.
fn earlier_files(pattern: &str, names: &Names) -> Vec<String> {
    let (folder, _) = pattern.rsplit_once('/').map_or((".", ""), |parts| parts);
    // Without a folder, or if it cannot be read, creating the file fails with the reason.
    let entries = fs::read_dir(match folder {
        "" => "/",
        folder => folder,
    });
    let mut found = Vec::new();
    for entry in entries.into_iter().flatten().flatten() {
        let (Ok(name), Ok(facts)) = (entry.file_name().into_string(), entry.metadata()) else {
            continue;
        };
        if facts.is_file() && names.is_of_series(&name) {
            let name = match pattern.rsplit_once('/') {
                Some((folder, _)) => format!("{folder}/{name}"),
                None => name,
            };
            found.push((facts.modified().ok(), name));
        }
    }
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

/// Deletes files that drop out of the ring, then opens the next file.
fn next_output(
    options: &FileOptions,
    names: &mut Names,
    ring: &mut FileRing,
    now_ns: u64,
) -> Result<Output, WriteError> {
    let name = names.next(now_ns)?;
    if let Some(count) = options.file_count {
        for old in ring.make_room(&name, count) {
            match fs::remove_file(&old) {
                // Another process has deleted the file already.
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                    return Err(WriteError::Delete { file: old, cause });
                }
                _ => {}
            }
        }
    }
    Output::create(&name)
}
