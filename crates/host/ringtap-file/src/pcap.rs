// SPDX-License-Identifier: MIT OR Apache-2.0
//! The classic pcap format: a file header, then a 16-byte header before each packet.

use ringtap_filter::{LinkType, MAX_SNAP_LENGTH};
use ringtap_pool::number::{to_u64, to_usize};

use super::{
    bytes::ByteOrder,
    damage::{Damage, ReadError},
    interface::{FileInterface, FileTime, Resolution},
    reader::FoundPacket,
    window::Window,
};

const FILE_HEADER: usize = 24;
/// Largest header of a packet, in bytes.
const LARGEST_PACKET_HEADER: usize = 24;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(super) const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// libpcap with Alexey Kuznetsov's patches, of the 1990s.
const PATCHED: u32 = 0xa1b2_cd34;
/// IXIA's hardware and software.
const IXIA: [u32; 2] = [0x1c00_01ac, 0x1c00_01ab];

/// Dialect of pcap, as far as the layout of a file depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Times in microseconds.
    Microseconds,
    /// Times in nanoseconds.
    Nanoseconds,
    /// The header of each packet has interface, protocol and direction, too: 24 bytes.
    Patched,
    /// The header of the file has the size of all packets, too: 28 bytes.
    Ixia,
}

impl Dialect {
    fn file_header(self) -> usize {
        match self {
            Dialect::Ixia => FILE_HEADER + 4,
            _ => FILE_HEADER,
        }
    }

    fn packet_header(self) -> usize {
        match self {
            Dialect::Patched => LARGEST_PACKET_HEADER,
            _ => 16,
        }
    }

    fn resolution(self) -> Resolution {
        match self {
            Dialect::Microseconds | Dialect::Patched | Dialect::Ixia => Resolution::MICROSECONDS,
            Dialect::Nanoseconds => Resolution::NANOSECONDS,
        }
    }
}

/// Order of the two lengths of a packet. libpcap before 0.4 and files of version 543.0 have the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    CapturedSecond,
    /// Version 2.3 had both orders: the captured length is the smaller one.
    Either,
}

/// The largest snap length in use anywhere (USB and D-Bus captures).
pub(super) const HARD_PACKET_LIMIT: u32 = 128 * 1024 * 1024;

/// The largest packet that is believed, given the snap length that the file states.
pub(super) fn packet_limit(snap_length: u32) -> u32 {
    snap_length.clamp(MAX_SNAP_LENGTH, HARD_PACKET_LIMIT)
}

/// Byte order and dialect that the magic number at the start of a file gives.
pub(super) fn recognise(start: [u8; 4]) -> Option<(ByteOrder, Dialect)> {
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find_map(|order| match order.u32_at(&start, 0) {
            MICROSECONDS => Some((order, Dialect::Microseconds)),
            NANOSECONDS => Some((order, Dialect::Nanoseconds)),
            PATCHED => Some((order, Dialect::Patched)),
            magic if IXIA.contains(&magic) => Some((order, Dialect::Ixia)),
            _ => None,
        })
}

/// Link type of a file by AIX, which writes types of interfaces (RFC 1573) and nanoseconds, as version 2.2.
fn aix_link_type(version: (u16, u16), link_type: LinkType) -> Option<LinkType> {
    match (version, link_type) {
        ((2, 2), LinkType(6)) => Some(LinkType::ETHERNET),
        // Token ring, FDDI and loopback.
        ((2, 2), LinkType(9)) => Some(LinkType(6)),
        ((2, 2), LinkType(15)) => Some(LinkType(10)),
        ((2, 2), LinkType(24)) => Some(LinkType(0)),
        _ => None,
    }
}

pub(super) struct PcapHeader {
    /// The bytes of the file's header.
    description: Vec<u8>,
    order: ByteOrder,
    resolution: Resolution,
    link_type: LinkType,
    packet_limit: u32,
    lengths: Lengths,
    /// Length of the header of each packet.
    packet_header: usize,
}

impl PcapHeader {
    pub(super) fn read(
        window: &mut Window,
        order: ByteOrder,
        dialect: Dialect,
    ) -> Result<(Self, FileInterface), ReadError> {
        let whole = dialect.file_header();
        let ready = window.fill(whole)?;
        let header = window.ready().first_chunk::<FILE_HEADER>();
        let Some(header) = header.filter(|_| ready >= whole) else {
            return Err(window.truncated("file header", whole, ready));
        };
        let version = (order.u16_at(header, 4), order.u16_at(header, 6));
        let lengths = match version {
            (2, 4..) => Lengths::CapturedFirst,
            (2, 3) => Lengths::Either,
            (2, _) | (543, 0) => Lengths::CapturedSecond,
            (major, minor) => {
                return Err(window.unsupported(format!("pcap version {major}.{minor}")));
            }
        };
        let snap_length = order.u32_at(header, 16);
        // The upper half holds the length of the frame check sequence, where there is one.
        let link_type = LinkType(match order {
            ByteOrder::Little => order.u16_at(header, 20),
            ByteOrder::Big => order.u16_at(header, 22),
        });
        let aix = aix_link_type(version, link_type).filter(|_| dialect == Dialect::Microseconds);
        let resolution = match aix {
            Some(_) => Resolution::NANOSECONDS,
            None => dialect.resolution(),
        };
        let link_type = aix.unwrap_or(LinkType::from_file(link_type.0));
        let description = window.ready()[..whole].to_vec();
        window.take(whole);
        let mut interface = FileInterface::new(0, link_type, snap_length);
        interface.resolution = resolution;
        let header = Self {
            description,
            order,
            resolution,
            link_type,
            packet_limit: packet_limit(snap_length),
            lengths,
            packet_header: dialect.packet_header(),
        };
        Ok((header, interface))
    }

    pub(super) fn description(&self) -> &[u8] {
        &self.description
    }

    #[inline]
    pub(super) fn next(&self, window: &mut Window) -> Result<Option<FoundPacket>, ReadError> {
        let ready = window.fill(self.packet_header)?;
        let header = window.ready().first_chunk::<16>();
        let Some(header) = header.filter(|_| ready >= self.packet_header) else {
            return match ready {
                0 => Ok(None),
                _ => Err(window.truncated("packet header", self.packet_header, ready)),
            };
        };
        let seconds = u64::from(self.order.u32_at(header, 0));
        let fraction = u64::from(self.order.u32_at(header, 4));
        let lengths = [self.order.u32_at(header, 8), self.order.u32_at(header, 12)];
        let is_swapped = match self.lengths {
            Lengths::CapturedFirst => false,
            Lengths::CapturedSecond => true,
            Lengths::Either => lengths[0] > lengths[1],
        };
        let [captured, wire_length] = if is_swapped {
            [lengths[1], lengths[0]]
        } else {
            lengths
        };
        if captured > self.packet_limit {
            return Err(window.corrupt(Damage::PacketLength {
                claimed: captured,
                limit: self.packet_limit,
            }));
        }
        let whole = self.packet_header + to_usize(captured);
        let ready = window.fill(whole)?;
        if ready < whole {
            return Err(window.truncated("packet", whole, ready));
        }
        let taken = window.take(whole);
        Ok(Some(FoundPacket {
            time: FileTime {
                nearest_ns: seconds * 1_000_000_000 + to_u64(self.resolution.nanoseconds(fraction)),
                fits: true,
            },
            wire_length,
            interface: 0,
            link_type: self.link_type,
            data: taken.start + self.packet_header..taken.end,
            options: taken.end..taken.end,
            order: self.order,
        }))
    }
}
