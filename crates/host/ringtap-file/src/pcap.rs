// SPDX-License-Identifier: MIT OR Apache-2.0
//! The classic pcap format: a file header, then a 16-byte header before each packet.

use ringtap_filter::{LinkType, MOST_SNAP_LENGTH};
use ringtap_pool::number::to_usize;

use super::{
    bytes::ByteOrder,
    damage::{Damage, ReadError},
    interface::{FileInterface, Resolution},
    reader::FoundPacket,
    window::Window,
};

const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(super) const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// A patched libpcap of the 1990s with longer packet headers.
pub(super) const PATCHED: u32 = 0xa1b2_cd34;

/// The largest snap length in use anywhere (USB and D-Bus captures).
pub(super) const HARD_PACKET_LIMIT: u32 = 128 * 1024 * 1024;

/// The largest packet that is believed, given the snap length that the file states.
pub(super) fn packet_limit(snap_length: u32) -> u32 {
    snap_length.clamp(MOST_SNAP_LENGTH, HARD_PACKET_LIMIT)
}

/// What the magic number at the start of a file says.
pub(super) fn recognise(start: [u8; 4]) -> Option<(ByteOrder, Resolution)> {
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find_map(|order| match order.u32_at(&start, 0) {
            MICROSECONDS => Some((order, Resolution::MICROSECONDS)),
            NANOSECONDS => Some((order, Resolution::NANOSECONDS)),
            _ => None,
        })
}

pub(super) struct PcapHeader {
    order: ByteOrder,
    resolution: Resolution,
    link_type: LinkType,
    packet_limit: u32,
}

impl PcapHeader {
    pub(super) fn read(
        window: &mut Window,
        order: ByteOrder,
        resolution: Resolution,
    ) -> Result<(Self, FileInterface), ReadError> {
        let ready = window.fill(FILE_HEADER)?;
        let Some(header) = window.ready().first_chunk::<FILE_HEADER>() else {
            return Err(window.truncated("file header", FILE_HEADER, ready));
        };
        let version = (order.u16_at(header, 4), order.u16_at(header, 6));
        if version.0 != 2 || version.1 < 4 {
            return Err(window.unsupported(format!("pcap version {}.{}", version.0, version.1)));
        }
        let snap_length = order.u32_at(header, 16);
        // The upper half holds the length of the frame check sequence, where there is one.
        let link_type = LinkType(match order {
            ByteOrder::Little => order.u16_at(header, 20),
            ByteOrder::Big => order.u16_at(header, 22),
        });
        window.take(FILE_HEADER);
        let mut interface = FileInterface::new(0, link_type, snap_length);
        interface.resolution = resolution;
        let header = Self {
            order,
            resolution,
            link_type,
            packet_limit: packet_limit(snap_length),
        };
        Ok((header, interface))
    }

    #[inline]
    pub(super) fn next(&self, window: &mut Window) -> Result<Option<FoundPacket>, ReadError> {
        let ready = window.fill(PACKET_HEADER)?;
        let Some(header) = window.ready().first_chunk::<PACKET_HEADER>() else {
            return match ready {
                0 => Ok(None),
                _ => Err(window.truncated("packet header", PACKET_HEADER, ready)),
            };
        };
        let seconds = u64::from(self.order.u32_at(header, 0));
        let fraction = u64::from(self.order.u32_at(header, 4));
        let captured = self.order.u32_at(header, 8);
        let wire_length = self.order.u32_at(header, 12);
        if captured > self.packet_limit {
            return Err(window.corrupt(Damage::PacketLength {
                claimed: captured,
                limit: self.packet_limit,
            }));
        }
        let whole = PACKET_HEADER + to_usize(captured);
        let ready = window.fill(whole)?;
        if ready < whole {
            return Err(window.truncated("packet", whole, ready));
        }
        let taken = window.take(whole);
        Ok(Some(FoundPacket {
            time_ns: seconds * 1_000_000_000 + self.resolution.nanoseconds(fraction),
            wire_length,
            interface: 0,
            link_type: self.link_type,
            data: taken.start + PACKET_HEADER..taken.end,
            options: taken.end..taken.end,
            order: self.order,
        }))
    }
}
