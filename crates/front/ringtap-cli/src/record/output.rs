// SPDX-License-Identifier: MIT OR Apache-2.0
//! One open file with a buffer of whole blocks; handles full disks.
//!
//! Invariants
//! - The buffer ends between blocks, and so does the file after each flush.
//! - Without direct I/O, the buffer starts between blocks too. With it, the buffer starts at a multiple of
//!   [`ALIGNMENT`] in the file and in memory.
//! - A compressed file consists of whole frames, each of a buffer.
//! - After an error, a regular file is truncated to whole blocks, and nothing more is written.

use std::{
    fs::File,
    io::{self, Write as _},
    mem,
    os::{fd::AsFd, unix::fs::OpenOptionsExt as _},
};

use ringtap_pool::number::to_u64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use ringtap_file::Format;
use ringtap_file::write::{WholeBlocks, classic, whole_blocks};

use super::compress::Compressor;
use super::direct::{ALIGNMENT, DirectFile};
use super::error::WriteError;

/// Fits into the second-level cache; larger and smaller buffers are slower.
pub(super) const BUFFER_BYTES: usize = 256 * 1024;

/// With direct I/O each write waits for the disk. In bytes.
const DIRECT_BUFFER_BYTES: usize = 1024 * 1024;

/// Destination of the bytes.
pub(super) trait Medium: Send {
    /// Writes bytes that belong at `offset` of a file; returns their number. A pipe has no offset.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Truncates the file to `size_bytes`.
    fn cut(&mut self, size_bytes: u64) -> io::Result<()>;

    /// Whether a program reads the bytes, or may read them later.
    fn is_read(&self) -> bool {
        true
    }
}

impl Medium for File {
    fn write_at(&mut self, bytes: &[u8], _: u64) -> io::Result<usize> {
        self.write(bytes)
    }

    fn cut(&mut self, size_bytes: u64) -> io::Result<()> {
        match self.metadata()?.is_file() {
            true => self.set_len(size_bytes),
            false => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        }
    }
}

/// Standard output: written bytes cannot be removed.
struct StdoutPipe(File);

impl Medium for StdoutPipe {
    fn write_at(&mut self, bytes: &[u8], _: u64) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn cut(&mut self, _: u64) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    fn is_read(&self) -> bool {
        // For a pipe with a closed reading end, the kernel always reports that.
        let mut pipe = [PollFd::new(&self.0, PollFlags::empty())];
        let asked = poll(&mut pipe, Some(&Timespec::default()));
        asked.is_err() || !pipe[0].revents().contains(PollFlags::ERR)
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteMode {
    /// Through the kernel's page cache.
    Cached,
    /// Past the page cache.
    Direct,
}

/// A file or pipe, and the blocks that are not written to it yet.
pub(super) struct Output {
    name: String,
    medium: Box<dyn Medium>,
    mode: WriteMode,
    buffer: Vec<u8>,
    /// Unused bytes at the start of the buffer, so that the first used one is aligned for direct I/O.
    base: usize,
    /// Offset in the file of the first used byte.
    offset: u64,
    /// How many of the used bytes are in the file already; the next write repeats them.
    in_file: usize,
    /// Blocks of which the buffer has at most the last part, because direct I/O wrote what was before it. They
    /// end at `end` of the used bytes, and count as written when these bytes are in the file.
    uncounted: WholeBlocks,
    format: Format,
    /// The file's header is in the file or on its way.
    has_header: bool,
    compressor: Option<Compressor>,
    /// Bytes of whole blocks in the file, and their packets.
    size_bytes: u64,
    packets: u64,
    wire_bytes: u64,
    failed: bool,
}

impl Output {
    /// Creates the file `name`, replacing an old one; `-` is standard output.
    pub(super) fn create(name: &str, mode: WriteMode) -> Result<Self, WriteError> {
        if name == "-" {
            return Self::standard_output();
        }
        // Packets are for nobody but the user that recorded them.
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let medium = match mode {
            WriteMode::Cached => options.open(name).map(|file| Box::new(file) as Box<_>),
            WriteMode::Direct => {
                DirectFile::open(&mut options, name).map(|file| Box::new(file) as Box<_>)
            }
        };
        let medium = medium.map_err(|cause| WriteError::Create {
            file: name.to_owned(),
            cause,
        })?;
        Ok(Self::new(name, medium, mode))
    }

    fn standard_output() -> Result<Self, WriteError> {
        let stdout = io::stdout();
        let name = "standard output";
        let owned = stdout.as_fd().try_clone_to_owned();
        let pipe = owned.map_err(|cause| WriteError::Create {
            file: name.to_owned(),
            cause,
        })?;
        let pipe = Box::new(StdoutPipe(File::from(pipe)));
        Ok(Self::new(name, pipe, WriteMode::Cached))
    }

    pub(super) fn new(name: &str, medium: Box<dyn Medium>, mode: WriteMode) -> Self {
        let mut buffer = Vec::with_capacity(match mode {
            WriteMode::Cached => BUFFER_BYTES,
            WriteMode::Direct => DIRECT_BUFFER_BYTES + ALIGNMENT,
        });
        Self {
            name: name.to_owned(),
            medium,
            base: align(&mut buffer, mode),
            mode,
            buffer,
            offset: 0,
            in_file: 0,
            uncounted: WholeBlocks::default(),
            format: Format::Pcapng,
            has_header: false,
            compressor: None,
            size_bytes: 0,
            packets: 0,
            wire_bytes: 0,
            failed: false,
        }
    }

    /// Writes this format from the beginning, through the compressor if there is one.
    pub(super) fn begin(&mut self, format: Format, compressor: Option<Compressor>) {
        (self.format, self.compressor) = (format, compressor);
    }

    /// The compressor, for the next file.
    pub(super) fn take_compressor(&mut self) -> Option<Compressor> {
        self.compressor.take()
    }

    /// Fails if no program reads the bytes, as far as the system knows.
    pub(super) fn require_a_reader(&self) -> Result<(), WriteError> {
        match self.medium.is_read() {
            true => Ok(()),
            false => Err(WriteError::Closed {
                file: self.name.clone(),
                packets: self.packets,
            }),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes in the file and in the buffer; of a compressed file, those in the file.
    #[inline]
    pub(super) fn size_bytes(&self) -> u64 {
        match self.compressor {
            None => self.offset + to_u64(self.buffer.len() - self.base),
            Some(_) => self.size_bytes,
        }
    }

    /// Whether everything has been written.
    pub(super) fn is_flushed(&self) -> bool {
        let is_written = self.buffer.len() == self.base + self.in_file;
        is_written && self.compressor.as_ref().is_none_or(Compressor::is_empty)
    }

    /// The buffer, with room for `room` more bytes; append only whole blocks.
    #[inline]
    pub(super) fn buffer(&mut self, room: usize) -> Result<&mut Vec<u8>, WriteError> {
        match self.mode {
            WriteMode::Cached if self.buffer.len() + room > BUFFER_BYTES => self.pass_on()?,
            WriteMode::Direct if self.buffer.len() + room > DIRECT_BUFFER_BYTES => {
                self.write(aligned(self.buffer.len() - self.base))?;
            }
            _ => {}
        }
        Ok(&mut self.buffer)
    }

    /// Writes everything to the file.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        self.pass_on()?;
        while self.write_frame()? {}
        Ok(())
    }

    /// Writes the buffer into the file or into the compressor.
    fn pass_on(&mut self) -> Result<(), WriteError> {
        match self.compressor {
            Some(_) => self.compress(),
            None => self.write(self.buffer.len() - self.base),
        }
    }

    /// Writes this many bytes of the buffer to the file. Direct I/O writes only whole parts of
    /// [`ALIGNMENT`] bytes past the page cache; the buffer keeps the rest, which is written again.
    fn write(&mut self, bytes: usize) -> Result<(), WriteError> {
        self.require_no_failure()?;
        if bytes <= self.in_file {
            return Ok(());
        }
        let part = &self.buffer[self.base..self.base + bytes];
        write_all(&mut *self.medium, part, self.offset)
            .map_err(|(done, cause)| self.fail(done, cause))?;
        self.count(bytes);
        self.in_file = bytes;
        self.drain(match self.mode {
            WriteMode::Cached => bytes,
            WriteMode::Direct => aligned(bytes),
        });
        Ok(())
    }

    /// Removes written bytes from the front of the buffer.
    fn drain(&mut self, bytes: usize) {
        let rest = self.whole(self.uncounted.end, self.buffer.len() - self.base);
        self.uncounted.packets += rest.packets;
        self.uncounted.wire_bytes += rest.wire_bytes;
        let rest = self.buffer.split_off(self.base + bytes);
        self.base = align(&mut self.buffer, self.mode);
        self.buffer.extend_from_slice(&rest);
        self.uncounted.end = rest.len();
        self.in_file -= bytes;
        self.offset += to_u64(bytes);
    }

    fn require_no_failure(&mut self) -> Result<(), WriteError> {
        match self.failed {
            true => Err(self.fail(0, io::Error::other("an earlier write failed"))),
            false => Ok(()),
        }
    }

    /// Gives the buffer to the compressor, after writing a frame if too many are on their way.
    fn compress(&mut self) -> Result<(), WriteError> {
        self.require_no_failure()?;
        while self.compressor.as_ref().is_some_and(Compressor::is_full) {
            self.write_frame()?;
        }
        let holds = self.whole(0, self.buffer.len());
        let Some(compressor) = self.compressor.as_mut().filter(|_| !self.buffer.is_empty()) else {
            return Ok(());
        };
        self.has_header = true;
        match compressor.submit(mem::take(&mut self.buffer), holds) {
            Ok(empty) => self.buffer = empty,
            Err(cause) => return Err(self.fail(0, cause)),
        }
        Ok(())
    }

    /// Writes the oldest compressed buffer; returns `false` if there is none.
    fn write_frame(&mut self) -> Result<bool, WriteError> {
        let Some(frame) = self.compressor.as_mut().and_then(Compressor::take) else {
            return Ok(false);
        };
        let (frame, holds) = frame.map_err(|cause| self.fail(0, cause))?;
        write_all(&mut *self.medium, &frame, self.size_bytes)
            .map_err(|(done, cause)| self.fail(done, cause))?;
        self.size_bytes += to_u64(frame.len());
        self.packets += holds.packets;
        self.wire_bytes += holds.wire_bytes;
        Ok(true)
    }

    /// Packets in the file, without the buffer, and their bytes on the wire.
    pub(super) fn in_file(&self) -> (u64, u64) {
        (self.packets, self.wire_bytes)
    }

    /// The whole blocks between two offsets in the buffer, the first one that of a block.
    fn whole(&self, from: usize, limit: usize) -> WholeBlocks {
        let (bytes, limit) = (&self.buffer[self.base + from..], limit - from);
        if self.format == Format::Pcapng {
            return whole_blocks(bytes, limit);
        }
        let header = match self.has_header {
            true => 0,
            false => classic::FILE_HEADER,
        };
        if limit < header {
            return WholeBlocks::default();
        }
        let packets = classic::whole_packets(&bytes[header..], limit - header);
        WholeBlocks {
            end: header + packets.end,
            ..packets
        }
    }

    /// Counts the blocks that end within the first `done` bytes of the buffer as written.
    fn count(&mut self, done: usize) {
        if done < self.uncounted.end {
            return;
        }
        let more = self.whole(self.uncounted.end, done);
        let end = self.uncounted.end + more.end;
        self.has_header |= end > 0;
        self.size_bytes = self.offset + to_u64(end);
        self.packets += self.uncounted.packets + more.packets;
        self.wire_bytes += self.uncounted.wire_bytes + more.wire_bytes;
        self.uncounted = WholeBlocks {
            end,
            ..WholeBlocks::default()
        };
    }

    /// Truncates the file to whole blocks after `done` bytes of the buffer, or of a frame, were written;
    /// drops the rest.
    #[cold]
    fn fail(&mut self, done: usize, cause: io::Error) -> WriteError {
        let is_whole = match self.compressor {
            None => {
                self.count(done);
                self.size_bytes == self.offset + to_u64(done)
            }
            Some(_) => done == 0,
        };
        self.buffer.truncate(self.base);
        self.uncounted = WholeBlocks::default();
        (self.in_file, self.offset) = (0, self.size_bytes);
        self.failed = true;
        let file = self.name.clone();
        let (size_bytes, packets) = (self.size_bytes, self.packets);
        if cause.kind() == io::ErrorKind::BrokenPipe {
            return WriteError::Closed { file, packets };
        }
        let clean = is_whole || self.medium.cut(size_bytes).is_ok();
        if clean && size_bytes == 0 {
            return WriteError::Begin { file, cause };
        }
        if clean {
            return WriteError::Write {
                file,
                size_bytes,
                packets,
                cause,
            };
        }
        WriteError::Torn {
            file,
            size_bytes,
            packets,
            cause,
        }
    }
}

/// Writes all bytes from `offset` on; an error says how many were written before.
fn write_all(medium: &mut dyn Medium, bytes: &[u8], offset: u64) -> Result<(), (usize, io::Error)> {
    let mut done = 0;
    while done < bytes.len() {
        match medium.write_at(&bytes[done..], offset + to_u64(done)) {
            Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((done, error)),
        }
    }
    Ok(())
}

/// The largest multiple of [`ALIGNMENT`] in this number of bytes.
fn aligned(bytes: usize) -> usize {
    bytes - bytes % ALIGNMENT
}

/// Empties a buffer, up to bytes that align the following ones for direct I/O; returns their number.
fn align(buffer: &mut Vec<u8>, mode: WriteMode) -> usize {
    buffer.clear();
    if mode == WriteMode::Direct {
        buffer.resize(buffer.as_ptr().align_offset(ALIGNMENT), 0);
    }
    buffer.len()
}

impl Drop for Output {
    fn drop(&mut self) {
        // The buffer is full here only after a failure elsewhere: save what is possible.
        let _ = self.flush();
    }
}
