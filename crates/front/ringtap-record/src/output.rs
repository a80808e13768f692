// SPDX-License-Identifier: MIT OR Apache-2.0
//! One open file with a buffer of whole blocks; handles full disks.
//!
//! Invariants
//! - The buffer ends between blocks, and so does the file after each flush.
//! - Without direct I/O, the buffer starts between blocks too. With it, the buffer starts at a multiple of
//!   [`ALIGNMENT`](crate::direct::ALIGNMENT) in the file and in memory.
//! - A compressed file consists of whole frames, each of a buffer.
//! - After an error, a regular file is truncated to whole blocks, and nothing more is written.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::{fs::File, io, mem, sync::Arc};

use ringtap_pool::number::to_u64;

use ringtap_file::Format;
use ringtap_file::write::{WholeBlocks, classic, whole_blocks};
use ringtap_ipc::folder::{FOREIGN_LINK, link_flags};
use rustix::io::Errno;

use crate::compress::{self, Compressor};
use crate::direct::{
    self, DirectFile, PART_BYTES, WriteRequest, WriteThread, aligned, aligned_buffer,
};
use crate::error::WriteError;
use crate::medium::{Medium, StdoutPipe, make_private, write_all};
use crate::options::RecordOptions;
use crate::totals::{FileContent, PacketTotals};

/// Fits into the second-level cache; larger and smaller buffers are slower.
pub(crate) const BUFFER_BYTES: usize = 256 * 1024;

/// How files are written, with the threads for that.
pub(crate) enum WriteMode {
    /// Through the kernel's page cache.
    Cached,
    /// In frames that threads compress.
    Compressed(Compressor),
    /// Past the page cache, by a thread.
    Direct(WriteThread),
}

impl WriteMode {
    /// Starts the threads that these options need.
    pub(crate) fn start(options: &RecordOptions) -> io::Result<Self> {
        match options.compression() {
            Some(method) => compress::start(method).map(Self::Compressed),
            None if options.direct_io => direct::start().map(Self::Direct),
            None => Ok(Self::Cached),
        }
    }

    /// Whether a buffer has to be taken from the threads before the next one.
    fn is_full(&self) -> bool {
        match self {
            Self::Cached => false,
            Self::Compressed(compressor) => compressor.is_full(),
            Self::Direct(thread) => thread.is_full(),
        }
    }

    /// Whether the threads have no buffer.
    fn is_empty(&self) -> bool {
        match self {
            Self::Cached => true,
            Self::Compressed(compressor) => compressor.is_empty(),
            Self::Direct(thread) => thread.is_empty(),
        }
    }
}

/// A file or pipe, and the blocks that are not written to it yet.
pub(crate) struct Output {
    name: String,
    medium: Arc<dyn Medium>,
    pub(crate) mode: WriteMode,
    format: Format,
    buffer: Vec<u8>,
    /// Unused bytes at the start of the buffer, so that the first used one is aligned for direct I/O.
    base: usize,
    /// Offset in the file of the first used byte.
    offset: u64,
    /// How many of the used bytes are in the file already; the next write repeats them.
    in_file: usize,
    /// Packets in the file, in threads and in the buffer.
    appended: PacketTotals,
    /// With direct I/O: all that was appended before this buffer was begun.
    before: FileContent,
    written: FileContent,
    failed: bool,
}

impl Output {
    /// Creates the file `name`, replacing an old one; `-` is standard output.
    pub(crate) fn create(name: &str, format: Format, mode: WriteMode) -> Result<Self, WriteError> {
        let medium = open(name, &mode)?;
        Ok(Self::new(shown(name), medium, format, mode))
    }

    pub(crate) fn new(
        name: &str,
        medium: Arc<dyn Medium>,
        format: Format,
        mut mode: WriteMode,
    ) -> Self {
        let (buffer, base) = match &mut mode {
            WriteMode::Direct(thread) => {
                let buffer = aligned_buffer(thread);
                let base = buffer.len();
                (buffer, base)
            }
            _ => (Vec::with_capacity(BUFFER_BYTES), 0),
        };
        Self {
            name: name.to_owned(),
            medium,
            mode,
            format,
            buffer,
            base,
            offset: 0,
            in_file: 0,
            appended: PacketTotals::default(),
            before: FileContent::default(),
            written: FileContent::default(),
            failed: false,
        }
    }

    /// Begins the next file of a series; all of this one has to be flushed before.
    pub(crate) fn next(&mut self, name: &str) -> Result<(), WriteError> {
        self.medium = open(name, &self.mode)?;
        name.clone_into(&mut self.name);
        // Direct I/O kept the last bytes, to write them again with those that would follow.
        self.buffer.truncate(self.base);
        (self.offset, self.in_file) = (0, 0);
        self.appended = PacketTotals::default();
        (self.before, self.written) = Default::default();
        Ok(())
    }

    /// Fails if no program reads the bytes, as far as the system knows.
    pub(crate) fn require_a_reader(&self) -> Result<(), WriteError> {
        if self.medium.is_read() {
            Ok(())
        } else {
            Err(WriteError::Closed {
                file: self.name.clone(),
                packets: self.written.totals.packets,
            })
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes in the file, in its thread and in the buffer; of a compressed file, those in the file.
    #[inline]
    pub(crate) fn size_bytes(&self) -> u64 {
        match self.mode {
            WriteMode::Compressed(_) => self.written.size_bytes,
            _ => self.offset + to_u64(self.used()),
        }
    }

    /// Number of used bytes in the buffer.
    #[inline]
    fn used(&self) -> usize {
        self.buffer.len() - self.base
    }

    /// Whether everything has been written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.used() == self.in_file && self.mode.is_empty()
    }

    /// The buffer, with room for `room` more bytes; append only whole blocks.
    #[inline]
    pub(crate) fn buffer(&mut self, room: usize) -> Result<&mut Vec<u8>, WriteError> {
        let most = match self.mode {
            WriteMode::Direct(_) => PART_BYTES,
            _ => BUFFER_BYTES,
        };
        if self.buffer.len() + room > most {
            self.pass_on(aligned(self.used()))?;
        }
        Ok(&mut self.buffer)
    }

    /// Packets in the file, in threads and in the buffer.
    #[inline]
    pub(crate) fn packets(&self) -> u64 {
        self.appended.packets
    }

    /// Counts packets that were appended to the buffer.
    #[inline]
    pub(crate) fn count(&mut self, more: PacketTotals) {
        self.appended += more;
    }

    /// Writes everything to the file.
    pub(crate) fn flush(&mut self) -> Result<(), WriteError> {
        self.pass_on(self.used())?;
        while self.take()? {}
        Ok(())
    }

    /// Writes the buffer, or gives it to a thread; with direct I/O only this many bytes of it.
    fn pass_on(&mut self, bytes: usize) -> Result<(), WriteError> {
        if self.failed {
            return Err(self.fail(0, io::Error::other("an earlier write failed")));
        }
        while self.mode.is_full() {
            self.take()?;
        }
        match self.mode {
            WriteMode::Cached => self.write(),
            WriteMode::Compressed(_) => self.compress(),
            WriteMode::Direct(_) => self.write_direct(bytes),
        }
    }

    /// Writes the buffer to the file.
    fn write(&mut self) -> Result<(), WriteError> {
        write_all(&*self.medium, &self.buffer, self.offset)
            .map_err(|(done, cause)| self.fail(done, cause))?;
        self.offset += to_u64(self.buffer.len());
        self.buffer.clear();
        self.written = self.content();
        Ok(())
    }

    /// All that was appended; of a compressed file, the size is that of the bytes in the file.
    pub(crate) fn content(&self) -> FileContent {
        FileContent {
            size_bytes: self.size_bytes(),
            totals: self.appended,
        }
    }

    /// Gives this many bytes of the buffer to the thread. The next buffer begins with those after the last
    /// multiple of [`ALIGNMENT`](crate::direct::ALIGNMENT), which are written again where the thread writes
    /// them now.
    fn write_direct(&mut self, bytes: usize) -> Result<(), WriteError> {
        let (all, rest) = (self.content(), self.base + aligned(bytes));
        let is_whole = bytes == self.used();
        let WriteMode::Direct(thread) = &mut self.mode else {
            return Ok(());
        };
        if bytes <= self.in_file {
            return Ok(());
        }
        let mut next = aligned_buffer(thread);
        let range = self.base..self.base + bytes;
        self.base = next.len();
        next.extend_from_slice(&self.buffer[rest..]);
        let request = WriteRequest {
            medium: Arc::clone(&self.medium),
            offset: self.offset,
            // A last block may end in the next part.
            holds: if is_whole { all } else { self.before },
            range,
        };
        self.before = all;
        self.in_file = bytes - aligned(bytes);
        self.offset += to_u64(aligned(bytes));
        let sent = thread.submit(mem::replace(&mut self.buffer, next), request);
        sent.map_err(|cause| self.fail(0, cause))
    }

    /// Gives the buffer to the compressor.
    fn compress(&mut self) -> Result<(), WriteError> {
        let WriteMode::Compressed(compressor) = &mut self.mode else {
            return Ok(());
        };
        if self.buffer.is_empty() {
            return Ok(());
        }
        let next = compressor.buffer(BUFFER_BYTES);
        let sent = compressor.submit(mem::replace(&mut self.buffer, next), self.appended);
        sent.map_err(|cause| self.fail(0, cause))
    }

    /// Waits for the oldest buffer of the threads; returns `false` if there is none.
    fn take(&mut self) -> Result<bool, WriteError> {
        match &mut self.mode {
            WriteMode::Cached => return Ok(false),
            WriteMode::Direct(thread) => match thread.take() {
                None => return Ok(false),
                Some(Ok((request, ()))) => self.written = request.holds,
                Some(Err(cause)) => return Err(self.fail(0, cause)),
            },
            WriteMode::Compressed(compressor) => {
                let Some(frame) = compressor.take() else {
                    return Ok(false);
                };
                let (totals, frame) = frame.map_err(|cause| self.fail(0, cause))?;
                let size_bytes = self.written.size_bytes;
                write_all(&*self.medium, &frame, size_bytes)
                    .map_err(|(done, cause)| self.fail(done, cause))?;
                self.written = FileContent {
                    size_bytes: size_bytes + to_u64(frame.len()),
                    totals,
                };
            }
        }
        Ok(true)
    }

    /// Packets in the file, without the buffer.
    pub(crate) fn in_file(&self) -> PacketTotals {
        self.written.totals
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// The whole blocks in the first `done` bytes of the buffer, which starts between blocks.
    fn whole(&self, done: usize) -> WholeBlocks {
        if self.format == Format::Pcapng {
            return whole_blocks(&self.buffer, done);
        }
        let header = match self.offset {
            0 => classic::FILE_HEADER,
            _ => 0,
        };
        if done < header {
            return WholeBlocks::default();
        }
        let packets = classic::whole_packets(&self.buffer[header..], done - header);
        WholeBlocks {
            end: header + packets.end,
            ..packets
        }
    }

    /// Truncates the file to whole blocks after `done` bytes of the buffer, or of a frame, were written;
    /// drops the rest.
    #[cold]
    fn fail(&mut self, done: usize, cause: io::Error) -> WriteError {
        let is_whole = match self.mode {
            WriteMode::Cached => {
                let whole = self.whole(done);
                self.written.size_bytes += to_u64(whole.end);
                self.written.totals += PacketTotals {
                    packets: whole.packets,
                    wire_bytes: whole.wire_bytes,
                };
                whole.end == done
            }
            WriteMode::Compressed(_) => done == 0,
            // Parts that are not counted may be in the file.
            WriteMode::Direct(_) => false,
        };
        self.buffer.truncate(self.base);
        (self.in_file, self.offset) = (0, self.written.size_bytes);
        self.failed = true;
        let file = self.name.clone();
        let FileContent { size_bytes, totals } = self.written;
        let packets = totals.packets;
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

/// Opens a new file, or standard output.
fn open(name: &str, mode: &WriteMode) -> Result<Arc<dyn Medium>, WriteError> {
    // Packets are for nobody but the user that recorded them.
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let flags = link_flags(Path::new(name));
    let medium: io::Result<Arc<dyn Medium>> = match (name, mode) {
        ("-", _) => StdoutPipe::open().map(|pipe| Arc::new(pipe) as _),
        (_, WriteMode::Direct(_)) => {
            DirectFile::open(&mut options, name, flags).map(|file| Arc::new(file) as _)
        }
        _ => options
            .custom_flags(flags)
            .open(name)
            .and_then(|file| make_private(&file).map(|()| Arc::new(file) as _)),
    };
    medium.map_err(|cause| WriteError::Create {
        file: shown(name).to_owned(),
        cause: match Errno::from_io_error(&cause) {
            Some(Errno::LOOP) => io::Error::other(FOREIGN_LINK),
            _ => cause,
        },
    })
}

/// The name of a file, for messages.
fn shown(name: &str) -> &str {
    match name {
        "-" => "standard output",
        _ => name,
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // The buffer is full here only after a failure elsewhere: save what is possible.
        let _ = self.flush();
    }
}
