// SPDX-License-Identifier: MIT OR Apache-2.0
//! One open file with a buffer of whole blocks; handles full disks.
//!
//! Invariants
//! - The buffer starts and ends between blocks, and so does the file after each flush.
//! - A compressed file consists of whole frames, each of a buffer.
//! - After an error, a regular file is truncated to whole blocks, and nothing more is written.

use std::{
    fs::File,
    io::{self, Write},
    mem,
    os::{fd::AsFd, unix::fs::OpenOptionsExt as _},
};

use ringtap_pool::number::to_u64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use ringtap_file::Format;
use ringtap_file::write::{WholeBlocks, classic, whole_blocks};

use super::compress::Compressor;
use super::error::WriteError;

/// Fits into the second-level cache; larger and smaller buffers are slower.
pub(super) const BUFFER_BYTES: usize = 256 * 1024;

/// Destination of the bytes.
pub(super) trait Medium: Write + Send {
    /// Truncates the file to `size_bytes`.
    fn cut(&mut self, size_bytes: u64) -> io::Result<()>;

    /// Whether a program reads the bytes, or may read them later.
    fn is_read(&self) -> bool {
        true
    }
}

impl Medium for File {
    fn cut(&mut self, size_bytes: u64) -> io::Result<()> {
        match self.metadata()?.is_file() {
            true => self.set_len(size_bytes),
            false => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        }
    }
}

/// Standard output: written bytes cannot be removed.
struct StdoutPipe(File);

impl Write for StdoutPipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Medium for StdoutPipe {
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

/// A file or pipe, and the blocks that are not written to it yet.
pub(super) struct Output {
    name: String,
    medium: Box<dyn Medium>,
    buffer: Vec<u8>,
    format: Format,
    /// The file's header is in the file or on its way.
    has_header: bool,
    compressor: Option<Compressor>,
    /// Bytes and packets in the file.
    size_bytes: u64,
    packets: u64,
    wire_bytes: u64,
    failed: bool,
}

impl Output {
    /// Creates the file `name`, replacing an old one; `-` is standard output.
    pub(super) fn create(name: &str) -> Result<Self, WriteError> {
        if name == "-" {
            return Self::standard_output();
        }
        // Packets are for nobody but the user that recorded them.
        let created = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(name);
        let file = created.map_err(|cause| WriteError::Create {
            file: name.to_owned(),
            cause,
        })?;
        Ok(Self::new(name, Box::new(file)))
    }

    fn standard_output() -> Result<Self, WriteError> {
        let stdout = io::stdout();
        let name = "standard output";
        let owned = stdout.as_fd().try_clone_to_owned();
        let pipe = owned.map_err(|cause| WriteError::Create {
            file: name.to_owned(),
            cause,
        })?;
        Ok(Self::new(name, Box::new(StdoutPipe(File::from(pipe)))))
    }

    pub(super) fn new(name: &str, medium: Box<dyn Medium>) -> Self {
        Self {
            name: name.to_owned(),
            medium,
            buffer: Vec::with_capacity(BUFFER_BYTES),
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
            None => self.size_bytes + to_u64(self.buffer.len()),
            Some(_) => self.size_bytes,
        }
    }

    /// Whether everything has been written.
    pub(super) fn is_flushed(&self) -> bool {
        self.buffer.is_empty() && self.compressor.as_ref().is_none_or(Compressor::is_empty)
    }

    /// The buffer, with room for `room` more bytes; append only whole blocks.
    #[inline]
    pub(super) fn buffer(&mut self, room: usize) -> Result<&mut Vec<u8>, WriteError> {
        if self.buffer.len() + room > BUFFER_BYTES {
            self.pass_on()?;
        }
        Ok(&mut self.buffer)
    }

    /// Writes everything to the file.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        self.pass_on()?;
        while self.write_frame()? {}
        Ok(())
    }

    /// Empties the buffer, into the file or into the compressor.
    fn pass_on(&mut self) -> Result<(), WriteError> {
        if self.failed {
            return Err(self.fail(0, io::Error::other("an earlier write failed")));
        }
        if self.compressor.is_some() {
            return self.compress();
        }
        let written = write_all(&mut *self.medium, &self.buffer);
        match written {
            Ok(()) => self.settle(self.buffer.len()),
            Err((done, cause)) => return Err(self.fail(done, cause)),
        };
        Ok(())
    }

    /// Gives the buffer to the compressor, after writing a frame if too many are on their way.
    fn compress(&mut self) -> Result<(), WriteError> {
        while self.compressor.as_ref().is_some_and(Compressor::is_full) {
            self.write_frame()?;
        }
        let holds = self.whole(self.buffer.len());
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
        write_all(&mut *self.medium, &frame).map_err(|(done, cause)| self.fail(done, cause))?;
        self.size_bytes += to_u64(frame.len());
        self.packets += holds.packets;
        self.wire_bytes += holds.wire_bytes;
        Ok(true)
    }

    /// Packets in the file, without the buffer, and their bytes on the wire.
    pub(super) fn in_file(&self) -> (u64, u64) {
        (self.packets, self.wire_bytes)
    }

    /// The whole blocks in the first `limit` bytes of the buffer.
    fn whole(&self, limit: usize) -> WholeBlocks {
        if self.format == Format::Pcapng {
            return whole_blocks(&self.buffer, limit);
        }
        let header = match self.has_header {
            true => 0,
            false => classic::FILE_HEADER,
        };
        if limit < header {
            return WholeBlocks::default();
        }
        let packets = classic::whole_packets(&self.buffer[header..], limit - header);
        WholeBlocks {
            end: header + packets.end,
            ..packets
        }
    }

    /// Empties the buffer, and counts the packets in its first `done` bytes as written.
    fn settle(&mut self, done: usize) -> usize {
        let whole = self.whole(done);
        self.has_header |= whole.end > 0;
        self.size_bytes += to_u64(whole.end);
        self.packets += whole.packets;
        self.wire_bytes += whole.wire_bytes;
        self.buffer.clear();
        whole.end
    }

    /// Truncates the file to whole blocks after `done` bytes of the buffer, or of a frame, were written;
    /// drops the rest.
    #[cold]
    fn fail(&mut self, done: usize, cause: io::Error) -> WriteError {
        let end = match self.compressor {
            None => self.settle(done),
            Some(_) => {
                self.buffer.clear();
                0
            }
        };
        self.failed = true;
        let file = self.name.clone();
        let (size_bytes, packets) = (self.size_bytes, self.packets);
        if cause.kind() == io::ErrorKind::BrokenPipe {
            return WriteError::Closed { file, packets };
        }
        let clean = end == done || self.medium.cut(size_bytes).is_ok();
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

/// Writes all bytes; an error says how many were written before.
fn write_all(medium: &mut dyn Medium, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut done = 0;
    while done < bytes.len() {
        match medium.write(&bytes[done..]) {
            Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((done, error)),
        }
    }
    Ok(())
}

impl Drop for Output {
    fn drop(&mut self) {
        // The buffer is full here only after a failure elsewhere: save what is possible.
        let _ = self.flush();
    }
}
