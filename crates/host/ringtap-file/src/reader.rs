// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the packets of a capture file in order, without copying them.
//!
//! Invariants
//! - The reader returns every whole packet before the end or the damage, in the order of the file.
//! - After the end or an error, the reader returns nothing.

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    os::fd::AsFd,
    sync::{Arc, atomic::AtomicBool},
};

use ringtap_filter::LinkType;

use super::{
    bytes::ByteOrder,
    damage::ReadError,
    input::{GZIP, Input, is_zstd},
    interface::{FileInterface, FileTime},
    options, pcap, pcapng,
    window::Window,
};

/// Link types `NULL` and `ENC`: packets begin with an address family in the byte order of the file.
const FAMILY_OF_WRITER: [LinkType; 2] = [LinkType(0), LinkType(109)];

/// The kind of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The classic format: one link type, one resolution.
    Pcap,
    /// Blocks, sections, several interfaces.
    Pcapng,
}

pub(super) enum Parser {
    Pcap(pcap::PcapHeader),
    Pcapng(pcapng::Section),
}

/// Position of a packet in the window, and the fields of its header.
pub(super) struct FoundPacket {
    pub(super) time: FileTime,
    pub(super) wire_length: u32,
    pub(super) interface: u32,
    pub(super) link_type: LinkType,
    pub(super) data: Range<usize>,
    pub(super) options: Range<usize>,
    pub(super) order: ByteOrder,
}

/// Direction of a packet, seen from the machine that captured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketDirection {
    /// The file has no direction.
    #[default]
    Unknown,
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// One packet of a capture file; it borrows the reader's buffer.
#[derive(Clone, Copy, Debug)]
pub struct RawPacket<'a> {
    /// Nanoseconds since 1970; 0 where the file has no time (simple packet blocks). A time before 1970 or after
    /// 2554 is the nearest one that fits, and counted in [`FileReader::unfit_times`].
    pub time_ns: u64,
    /// Bytes on the wire; `data` may hold fewer.
    pub wire_length: u32,
    /// Index into [`FileReader::interfaces`].
    pub interface: u32,
    /// Type of the header that `data` begins with.
    pub link_type: LinkType,
    /// The captured bytes. A header in the byte order of the file (link types 0 and 109) is
    /// little-endian here.
    pub data: &'a [u8],
    options: &'a [u8],
    order: ByteOrder,
}

impl RawPacket<'_> {
    /// Direction of the packet; only pcapng files have one.
    pub fn direction(&self) -> PacketDirection {
        let flags = options::find(self.options, self.order, 2).unwrap_or([0; 4]);
        match self.order.u32_at(&flags, 0) & 0b11 {
            1 => PacketDirection::Inbound,
            2 => PacketDirection::Outbound,
            _ => PacketDirection::Unknown,
        }
    }

    /// Packets lost between the previous packet and this one, if a pcapng file states that.
    pub fn drop_count(&self) -> Option<u64> {
        let count = options::find::<8>(self.options, self.order, 4)?;
        Some(self.order.u64_at(&count, 0))
    }
}

/// Point of a file from which its packets can be read without those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitPoint {
    /// Position in the file.
    pub offset: u64,
    /// Position of the header of its section.
    section_offset: u64,
    /// Bytes of the section's description that come before.
    description: usize,
}

/// Reads a capture file.
///
/// # Examples
///
/// ```
/// use std::io::Cursor;
///
/// use ringtap_file::FileReader;
/// use ringtap_file::write::classic;
/// use ringtap_filter::LinkType;
///
/// let mut file = Vec::new();
/// classic::file_header(&mut file, LinkType::ETHERNET);
/// let mut reader = FileReader::from_stream("empty.pcap", Cursor::new(file))?;
/// while let Some(packet) = reader.next_packet()? {
///     println!("{} ns, {} bytes", packet.time_ns, packet.data.len());
/// }
/// assert_eq!(reader.interfaces()[0].link_type, LinkType::ETHERNET);
/// # Ok::<(), ringtap_file::ReadError>(())
/// ```
pub struct FileReader {
    window: Window,
    parser: Parser,
    interfaces: Vec<FileInterface>,
    unfit_times: u64,
    ended: bool,
}

impl FileReader {
    /// Opens a pcap or pcapng file, also one that gzip or zstd compressed; `-` is standard input.
    ///
    /// Byte offsets in a compressed file are those of its content.
    ///
    /// # Errors
    ///
    /// - [`ReadError::Open`]: no such file, or no right to read it.
    /// - [`ReadError::NotACapture`], [`ReadError::Compressed`], [`ReadError::Unsupported`]:
    ///   the file is something else.
    /// - [`ReadError::Truncated`], [`ReadError::Corrupt`]: its header is damaged.
    pub fn open(path: &str) -> Result<Self, ReadError> {
        let named = |cause| ReadError::Open {
            file: path.to_owned(),
            cause,
        };
        let (file, name) = match path {
            "-" => {
                let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(named)?;
                (File::from(stdin), "standard input")
            }
            _ => (File::open(path).map_err(named)?, path),
        };
        let input = Input::from_file(file).map_err(named)?;
        Self::with_input(name, input)
    }

    /// Reads a capture from a stream that does not wait; `name` is the file in errors.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), without [`ReadError::Open`].
    pub fn from_stream(name: &str, stream: impl Read + Send + 'static) -> Result<Self, ReadError> {
        Self::with_input(name, Input::Ready(Box::new(stream)))
    }

    fn with_input(name: &str, input: Input) -> Result<Self, ReadError> {
        let mut window = Window::new(name.to_owned(), input);
        let mut interfaces = Vec::new();
        let ready = window.fill(4)?;
        let Some(start) = window.ready().first_chunk::<4>().copied() else {
            return Err(window.truncated("file header", 4, ready));
        };
        let parser = if start == pcapng::SECTION_HEADER.to_be_bytes() {
            Parser::Pcapng(pcapng::Section::first(&mut window)?)
        } else if let Some((order, dialect)) = pcap::recognise(start) {
            let (header, interface) = pcap::PcapHeader::read(&mut window, order, dialect)?;
            interfaces.push(interface);
            Parser::Pcap(header)
        } else {
            return Err(refuse(&window, start));
        };
        Ok(Self {
            window,
            parser,
            interfaces,
            unfit_times: 0,
            ended: false,
        })
    }

    /// Ends the packets once `stop` is set, also while a pipe is silent.
    #[must_use]
    pub fn stop_when(mut self, stop: Arc<AtomicBool>) -> Self {
        self.window.stop_when(stop);
        self
    }

    /// The next packet; `None` at the end, after an error, and once the stop flag is set.
    ///
    /// # Errors
    ///
    /// - [`ReadError::Truncated`]: the file ends inside a packet or block.
    /// - [`ReadError::Corrupt`]: an impossible value.
    /// - [`ReadError::Read`]: the system failed to read.
    /// - [`ReadError::Unsupported`]: a pcapng section of an unknown version.
    #[inline]
    pub fn next_packet(&mut self) -> Result<Option<RawPacket<'_>>, ReadError> {
        if self.ended {
            return Ok(None);
        }
        let found = match &mut self.parser {
            Parser::Pcap(header) => header.next(&mut self.window),
            Parser::Pcapng(section) => section.next(&mut self.window, &mut self.interfaces),
        };
        if let Ok(Some(found)) = &found
            && found.order == ByteOrder::Big
            && FAMILY_OF_WRITER.contains(&found.link_type)
        {
            self.window.swap(&found.data);
        }
        match found {
            Ok(Some(found)) => {
                self.unfit_times += u64::from(!found.time.fits);
                Ok(Some(RawPacket {
                    time_ns: found.time.nearest_ns,
                    wire_length: found.wire_length,
                    interface: found.interface,
                    link_type: found.link_type,
                    data: self.window.slice(found.data),
                    options: self.window.slice(found.options),
                    order: found.order,
                }))
            }
            Ok(None) => {
                self.ended = true;
                Ok(None)
            }
            Err(error) => self.end_with(error),
        }
    }

    #[cold]
    fn end_with(&mut self, error: ReadError) -> Result<Option<RawPacket<'_>>, ReadError> {
        self.ended = true;
        match (self.window.stopped(), error) {
            // The stop flag ended the input inside a packet: the file is not damaged.
            (true, ReadError::Truncated { .. }) => Ok(None),
            (_, error) => Err(error),
        }
    }

    /// The kind of this file.
    pub fn format(&self) -> Format {
        match self.parser {
            Parser::Pcap(_) => Format::Pcap,
            Parser::Pcapng(_) => Format::Pcapng,
        }
    }

    /// The interfaces described so far; of a pcapng file more may come with later packets. A file whose interfaces need
    /// more than 64 MiB of memory ends with [`Damage::Interfaces`](crate::Damage::Interfaces).
    pub fn interfaces(&self) -> &[FileInterface] {
        &self.interfaces
    }

    /// The headers that the next packet depends on: that of the file, or those of its section and of the section's
    /// interfaces so far. Absent if a section has more than 16 MiB of them.
    ///
    /// Followed by the bytes from [`offset`](Self::offset) on, they are a capture of the packets that follow.
    pub fn description(&self) -> Option<&[u8]> {
        self.description_at(&self.split_point()?)
    }

    /// The point behind the last packet; absent where [`description`](Self::description) is.
    pub fn split_point(&self) -> Option<SplitPoint> {
        let (is_whole, description) = match &self.parser {
            Parser::Pcap(header) => (true, header.description()),
            Parser::Pcapng(section) => {
                let description = section.description();
                (description.is_whole, &description.bytes[..])
            }
        };
        is_whole.then_some(SplitPoint {
            offset: self.offset(),
            section_offset: self.section_offset(),
            description: description.len(),
        })
    }

    /// The [`description`](Self::description) as it was at an earlier point of this file; absent if another section has
    /// begun since.
    pub fn description_at(&self, point: &SplitPoint) -> Option<&[u8]> {
        let description = match &self.parser {
            Parser::Pcap(header) => header.description(),
            Parser::Pcapng(section) => &section.description().bytes,
        };
        let is_of_section = point.section_offset == self.section_offset();
        description
            .get(..point.description)
            .filter(|_| is_of_section)
    }

    /// Position in the file of the header of the last packet's section, or of the file's header. The file from there on
    /// is a capture.
    pub fn section_offset(&self) -> u64 {
        match &self.parser {
            Parser::Pcap(_) => 0,
            Parser::Pcapng(section) => section.description().section_offset,
        }
    }

    /// Whether the bytes come from a pipe, which may stay silent at any packet.
    pub fn is_stream(&self) -> bool {
        self.window.is_stream()
    }

    /// Bytes in the buffer; with 0, the next packet of a pipe may take long.
    pub fn buffered_bytes(&self) -> usize {
        self.window.ready().len()
    }

    /// Packets so far whose time is before 1970 or after 2554.
    pub fn unfit_times(&self) -> u64 {
        self.unfit_times
    }

    /// Position in the file after the last returned packet.
    pub fn offset(&self) -> u64 {
        self.window.offset()
    }

    /// Name of the file in errors.
    pub fn file(&self) -> &str {
        self.window.file()
    }
}

/// The error for a file that starts with these bytes.
fn refuse(window: &Window, start: [u8; 4]) -> ReadError {
    let file = window.file().to_owned();
    let unpack = match start {
        [first, second, ..] if [first, second] == GZIP => "gzip -dc",
        start if is_zstd(start) => "zstd -dc",
        [0x04, 0x22, 0x4d, 0x18] => "lz4 -dc",
        [0xfd, b'7', b'z', b'X'] => "xz -dc",
        [b'B', b'Z', b'h', _] => "bzip2 -dc",
        _ => return ReadError::NotACapture { file, start },
    };
    ReadError::Compressed { file, unpack }
}
