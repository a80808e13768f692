// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pcapng format: blocks in sections, each section with its own byte order and interfaces.
//!
//! Invariants
//! - A block is used only if its two lengths agree and everything in it lies inside it.
//! - Interface numbers of the file count from 0 in each section; ours run on over all sections.

use std::ops::Range;

use ringtap_filter::MAX_SNAP_LENGTH;
use ringtap_pool::number::{to_u32, to_usize};

use super::{
    bytes::ByteOrder,
    damage::{Damage, ReadError},
    interface::{FileInterface, FileTime},
    options::{self, INTERFACE_FIXED, STATISTICS_FIXED},
    pcap::{HARD_PACKET_LIMIT, packet_limit},
    reader::FoundPacket,
    window::Window,
};

pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const BYTE_ORDER_MARK: u32 = 0x1a2b_3c4d;
pub(super) const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const STATISTICS: u32 = 5;
pub(super) const PACKET: u32 = 6;

/// Type and length before the body.
const HEAD: usize = 8;
/// Head, and the length repeated after the body.
const FRAME: usize = 12;
/// Largest block that is believed: the largest packet, and 16 MiB for its options.
const BLOCK_LIMIT: u32 = HARD_PACKET_LIMIT + 16 * 1024 * 1024;
/// Most memory for the interfaces of a file, in bytes.
pub(super) const MAX_INTERFACES: usize = 64 * 1024 * 1024;
/// Largest description of a section that is kept.
pub(super) const MAX_DESCRIPTION: usize = 16 * 1024 * 1024;

/// The state of reading one section.
pub(super) struct Section {
    order: ByteOrder,
    number: u32,
    /// Our number of the section's interface 0.
    first_interface: usize,
    description: SectionDescription,
    /// Memory of the interfaces of all sections so far.
    interface_bytes: usize,
}

/// The header of a section, and the descriptions of its interfaces so far.
///
/// Within a section, the bytes are only appended to. From the first block on that would exceed [`MAX_DESCRIPTION`],
/// nothing is appended, and the description is not whole.
#[derive(Default)]
pub(super) struct SectionDescription {
    /// Position of the section header in the file.
    pub(super) section_offset: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) is_whole: bool,
}

impl SectionDescription {
    /// Begins the description of another section with its header.
    fn begin(&mut self, section_offset: u64, header: &[u8]) {
        self.section_offset = section_offset;
        self.bytes.clear();
        self.is_whole = true;
        self.append(header);
    }

    fn append(&mut self, block: &[u8]) {
        self.is_whole &= self.bytes.len() + block.len() <= MAX_DESCRIPTION;
        if self.is_whole {
            self.bytes.extend_from_slice(block);
        }
    }
}

/// The block at the start of the window.
#[derive(Clone, Copy)]
struct Block {
    order: ByteOrder,
    kind: u32,
    /// Whole length.
    length: u32,
}

impl Block {
    #[inline]
    fn whole(self) -> usize {
        to_usize(self.length)
    }

    /// The bytes of the block after checking both lengths; `fixed` bytes come before the variable part.
    #[inline]
    fn read(self, window: &mut Window, fixed: usize) -> Result<&[u8], ReadError> {
        let whole = self.whole();
        if whole < fixed + 4 || self.length > BLOCK_LIMIT || !self.length.is_multiple_of(4) {
            return Err(window.corrupt(Damage::BlockLength {
                block_type: self.kind,
                claimed: self.length,
            }));
        }
        let ready = window.fill(whole)?;
        if ready < whole {
            return Err(window.truncated("block", whole, ready));
        }
        let tail = self.order.u32_at(window.ready(), whole - 4);
        if tail != self.length {
            return Err(window.corrupt(Damage::BlockEnd {
                head: self.length,
                tail,
            }));
        }
        Ok(&window.ready()[..whole])
    }

    /// The bytes between the two lengths, at least `fixed`.
    fn body(self, window: &mut Window, fixed: usize) -> Result<&[u8], ReadError> {
        let bytes = self.read(window, HEAD + fixed)?;
        Ok(&bytes[HEAD..bytes.len() - 4])
    }
}

impl Section {
    /// Reads the header of the first section.
    pub(super) fn first(window: &mut Window) -> Result<Self, ReadError> {
        let mut description = SectionDescription::default();
        let order = section_header(window, &mut description)?;
        Ok(Self {
            order,
            number: 0,
            first_interface: 0,
            description,
            interface_bytes: 0,
        })
    }

    pub(super) fn description(&self) -> &SectionDescription {
        &self.description
    }

    #[inline]
    pub(super) fn next(
        &mut self,
        window: &mut Window,
        interfaces: &mut Vec<FileInterface>,
    ) -> Result<Option<FoundPacket>, ReadError> {
        loop {
            let ready = window.fill(FRAME)?;
            let Some(head) = window.ready().first_chunk::<FRAME>() else {
                return match ready {
                    0 => Ok(None),
                    _ => Err(window.truncated("block", FRAME, ready)),
                };
            };
            let block = Block {
                order: self.order,
                kind: self.order.u32_at(head, 0),
                length: self.order.u32_at(head, 4),
            };
            if block.kind == PACKET {
                return self.packet(window, interfaces, block).map(Some);
            }
            if let Some(found) = self.other(window, interfaces, block)? {
                return Ok(Some(found));
            }
        }
    }

    /// Handles every block but the usual packet; gives a packet if it held one.
    #[cold]
    fn other(
        &mut self,
        window: &mut Window,
        interfaces: &mut Vec<FileInterface>,
        block: Block,
    ) -> Result<Option<FoundPacket>, ReadError> {
        match block.kind {
            SECTION_HEADER => {
                self.order = section_header(window, &mut self.description)?;
                self.number = self.number.saturating_add(1);
                self.first_interface = interfaces.len();
            }
            INTERFACE => {
                let body = block.body(window, INTERFACE_FIXED)?;
                let interface = options::interface(self.number, body, self.order)
                    .map_err(|damage| window.corrupt(damage))?;
                self.account(window, 0, interface.memory_bytes())?;
                interfaces.push(interface);
                let whole = &window.ready()[..block.whole()];
                self.description.append(whole);
                window.take(block.whole());
            }
            STATISTICS => self.statistics(window, interfaces, block)?,
            SIMPLE_PACKET | OLD_PACKET => {
                return self.packet(window, interfaces, block).map(Some);
            }
            _ => {
                block.read(window, HEAD)?;
                window.take(block.whole());
            }
        }
        Ok(None)
    }

    /// An enhanced packet block, the packet block of the first drafts, or a simple packet block: a packet
    /// without time, of the section's first interface.
    #[inline]
    fn packet(
        &self,
        window: &mut Window,
        interfaces: &[FileInterface],
        block: Block,
    ) -> Result<FoundPacket, ReadError> {
        let order = self.order;
        let is_simple = block.kind == SIMPLE_PACKET;
        let fixed = HEAD + if is_simple { 4 } else { 20 };
        let bytes = block.read(window, fixed)?;
        let first_word = order.u32_at(bytes, 8);
        let (number, ticks, captured, wire_length) = if is_simple {
            (0, 0, first_word, first_word)
        } else {
            let number = match block.kind {
                // 16 bits for the interface, 16 for drops.
                OLD_PACKET => u32::from(order.u16_at(bytes, 8)),
                _ => first_word,
            };
            let ticks = order.split_u64_at(bytes, 12);
            (
                number,
                ticks,
                order.u32_at(bytes, 20),
                order.u32_at(bytes, 24),
            )
        };
        let interface = self.known(window, interfaces, number)?;
        let (time, captured) = match (is_simple, interface.snap_length) {
            (false, _) => (interface.time(ticks), captured),
            (true, 0) => (FileTime::NONE, captured),
            (true, limit) => (FileTime::NONE, captured.min(limit)),
        };
        let (data, options) = packet_parts(window, block, interface, fixed, captured)?;
        let at = window.take(block.whole()).start;
        // The interface is known, so its number was added to `first_interface` before.
        let first = to_u32(self.first_interface);
        Ok(FoundPacket {
            time,
            wire_length,
            interface: first.saturating_add(number),
            link_type: interface.link_type,
            data: at + data.start..at + data.end,
            options: at + options.start..at + options.end,
            order,
        })
    }

    #[inline]
    fn known<'a>(
        &self,
        window: &Window,
        interfaces: &'a [FileInterface],
        number: u32,
    ) -> Result<&'a FileInterface, ReadError> {
        let known = &interfaces[self.first_interface..];
        known.get(to_usize(number)).ok_or_else(|| {
            window.corrupt(Damage::NoSuchInterface {
                claimed: number,
                known: known.len(),
            })
        })
    }

    /// Accounts for an interface that needed `before` bytes and now needs `after`.
    fn account(&mut self, window: &Window, before: usize, after: usize) -> Result<(), ReadError> {
        self.interface_bytes = (self.interface_bytes - before).saturating_add(after);
        if self.interface_bytes > MAX_INTERFACES {
            return Err(window.corrupt(Damage::Interfaces {
                limit: MAX_INTERFACES,
            }));
        }
        Ok(())
    }

    fn statistics(
        &mut self,
        window: &mut Window,
        interfaces: &mut [FileInterface],
        block: Block,
    ) -> Result<(), ReadError> {
        let number = self.order.u32_at(block.body(window, STATISTICS_FIXED)?, 0);
        let interface = self.known(window, interfaces, number)?;
        let body = &window.ready()[HEAD..block.whole() - 4];
        let statistics = options::statistics(interface, body, self.order)
            .map_err(|damage| window.corrupt(damage))?;
        let interface = &mut interfaces[self.first_interface + to_usize(number)];
        let before = interface.memory_bytes();
        interface.statistics = Some(statistics);
        self.account(window, before, interface.memory_bytes())?;
        window.take(block.whole());
        Ok(())
    }
}

/// Where packet and options lie in the block, counted from its first byte.
#[inline]
fn packet_parts(
    window: &Window,
    block: Block,
    interface: &FileInterface,
    fixed: usize,
    captured: u32,
) -> Result<(Range<usize>, Range<usize>), ReadError> {
    if captured > MAX_SNAP_LENGTH && captured > packet_limit(interface.snap_length) {
        return Err(window.corrupt(Damage::PacketLength {
            claimed: captured,
            limit: packet_limit(interface.snap_length),
        }));
    }
    let end = block.whole() - 4;
    let data = fixed..fixed + to_usize(captured);
    if data.end > end {
        return Err(window.corrupt(Damage::PacketOutsideBlock {
            claimed: captured,
            room: to_u32(end - fixed),
        }));
    }
    let options = data.end.next_multiple_of(4).min(end)..end;
    Ok((data, options))
}

/// Reads a section header block, which replaces the description, and gives the section's byte order.
fn section_header(
    window: &mut Window,
    description: &mut SectionDescription,
) -> Result<ByteOrder, ReadError> {
    const FIXED: usize = HEAD + 16;
    let ready = window.fill(FRAME)?;
    let Some(head) = window.ready().first_chunk::<FRAME>() else {
        return Err(window.truncated("section header", FRAME, ready));
    };
    let order = match ByteOrder::Little.u32_at(head, 8) {
        BYTE_ORDER_MARK => ByteOrder::Little,
        swapped if swapped == BYTE_ORDER_MARK.swap_bytes() => ByteOrder::Big,
        found => return Err(window.corrupt(Damage::ByteOrderMark { found })),
    };
    let block = Block {
        order,
        kind: SECTION_HEADER,
        length: order.u32_at(head, 4),
    };
    let bytes = block.read(window, FIXED)?;
    let version = (order.u16_at(bytes, 12), order.u16_at(bytes, 14));
    // 1.2 was written by some tools for what is 1.0.
    if version.0 != 1 || !matches!(version.1, 0 | 2) {
        return Err(window.unsupported(format!("pcapng version {}.{}", version.0, version.1)));
    }
    description.begin(window.offset(), &window.ready()[..block.whole()]);
    window.take(block.whole());
    Ok(order)
}
