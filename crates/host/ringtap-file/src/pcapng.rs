// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pcapng format: blocks in sections, each section with its own byte order and interfaces.
//!
//! Invariants
//! - A block is used only if its two lengths agree and everything in it lies inside it.
//! - Interface numbers of the file count from 0 in each section; ours run on over all sections.

use std::ops::Range;

use ringtap_filter::LinkType;
use ringtap_pool::number::{to_u64, to_usize};

use super::{
    bytes::ByteOrder,
    damage::{Damage, ReadError},
    describe,
    interface::FileInterface,
    pcap::{USUAL_PACKET_LIMIT, packet_limit},
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
/// Blocks that are read whole (not packets, not skipped) are never near this size.
const DESCRIPTION_LIMIT: u32 = 16 * 1024 * 1024;

/// The state of reading one section.
pub(super) struct Section {
    order: ByteOrder,
    number: u32,
    /// Our number of the section's interface 0.
    first_interface: usize,
}

/// The type and whole length of the block at the start of the window.
#[derive(Clone, Copy)]
struct Block {
    kind: u32,
    length: u32,
}

impl Block {
    #[inline]
    fn whole(self) -> usize {
        to_usize(self.length)
    }
}

impl Section {
    /// Reads the header of the first section.
    pub(super) fn first(window: &mut Window) -> Result<Self, ReadError> {
        let order = section_header(window)?;
        Ok(Self {
            order,
            number: 0,
            first_interface: 0,
        })
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
                self.order = section_header(window)?;
                self.number = self.number.saturating_add(1);
                self.first_interface = interfaces.len();
            }
            INTERFACE => {
                let interface = self.interface(window, block)?;
                interfaces.push(interface);
            }
            STATISTICS => self.statistics(window, interfaces, block)?,
            SIMPLE_PACKET => return self.simple_packet(window, interfaces, block).map(Some),
            OLD_PACKET => return self.packet(window, interfaces, block).map(Some),
            _ => self.unknown(window, block)?,
        }
        Ok(None)
    }

    /// An enhanced packet block, or the packet block of the first drafts.
    #[inline]
    fn packet(
        &self,
        window: &mut Window,
        interfaces: &[FileInterface],
        block: Block,
    ) -> Result<FoundPacket, ReadError> {
        const FIXED: usize = HEAD + 20;
        let bytes = self.packet_block(window, block, FIXED)?;
        let number = match block.kind {
            // 16 bits for the interface, 16 for drops.
            OLD_PACKET => u32::from(self.order.u16_at(bytes, 8)),
            _ => self.order.u32_at(bytes, 8),
        };
        let ticks = self.order.split_u64_at(bytes, 12);
        let captured = self.order.u32_at(bytes, 20);
        let wire_length = self.order.u32_at(bytes, 24);
        let interface = self.known(window, interfaces, number)?;
        let (data, options) = packet_parts(window, block, interface, FIXED, captured)?;
        Ok(self.found(
            window,
            block,
            BlockParts {
                number,
                time_ns: interface.time_ns(ticks),
                link_type: interface.link_type,
                wire_length,
                data,
                options,
            },
        ))
    }

    /// A packet without time, of the section's first interface.
    fn simple_packet(
        &self,
        window: &mut Window,
        interfaces: &[FileInterface],
        block: Block,
    ) -> Result<FoundPacket, ReadError> {
        const FIXED: usize = HEAD + 4;
        let bytes = self.packet_block(window, block, FIXED)?;
        let wire_length = self.order.u32_at(bytes, 8);
        let interface = self.known(window, interfaces, 0)?;
        let captured = match interface.snap_length {
            0 => wire_length,
            limit => wire_length.min(limit),
        };
        let (data, _) = packet_parts(window, block, interface, FIXED, captured)?;
        Ok(self.found(
            window,
            block,
            BlockParts {
                number: 0,
                time_ns: 0,
                link_type: interface.link_type,
                wire_length,
                options: data.end..data.end,
                data,
            },
        ))
    }

    /// Moves past the block and says where its parts are in the window.
    #[inline]
    fn found(&self, window: &mut Window, block: Block, parts: BlockParts) -> FoundPacket {
        let at = window.take(block.whole()).start;
        // The interface is known, so its number was added to `first_interface` before.
        let first = u32::try_from(self.first_interface).unwrap_or(u32::MAX);
        FoundPacket {
            time_ns: parts.time_ns,
            wire_length: parts.wire_length,
            interface: first.saturating_add(parts.number),
            link_type: parts.link_type,
            data: at + parts.data.start..at + parts.data.end,
            options: at + parts.options.start..at + parts.options.end,
            order: self.order,
        }
    }

    /// The bytes of a whole packet block.
    #[inline]
    fn packet_block<'a>(
        &self,
        window: &'a mut Window,
        block: Block,
        fixed: usize,
    ) -> Result<&'a [u8], ReadError> {
        // Options may add to the packet; what else a block could hold is not that large.
        let limit = packet_limit(u32::MAX) + DESCRIPTION_LIMIT;
        self.whole_block(window, block, fixed, limit)
    }

    /// The bytes of a block after checking both lengths; `fixed` bytes come before the variable part.
    #[inline]
    fn whole_block<'a>(
        &self,
        window: &'a mut Window,
        block: Block,
        fixed: usize,
        limit: u32,
    ) -> Result<&'a [u8], ReadError> {
        let whole = block.whole();
        if whole < fixed + 4 || block.length > limit || !block.length.is_multiple_of(4) {
            return Err(window.corrupt(Damage::BlockLength {
                block_type: block.kind,
                claimed: block.length,
            }));
        }
        let ready = window.fill(whole)?;
        if ready < whole {
            return Err(window.truncated("block", whole, ready));
        }
        let tail = self.order.u32_at(window.ready(), whole - 4);
        if tail != block.length {
            return Err(window.corrupt(Damage::BlockEnd {
                head: block.length,
                tail,
            }));
        }
        Ok(&window.ready()[..whole])
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

    fn interface(&self, window: &mut Window, block: Block) -> Result<FileInterface, ReadError> {
        let fixed = HEAD + describe::INTERFACE_FIXED;
        let bytes = self.whole_block(window, block, fixed, DESCRIPTION_LIMIT)?;
        let body = &bytes[HEAD..bytes.len() - 4];
        let interface = describe::interface(self.number, body, self.order)
            .map_err(|damage| window.corrupt(damage))?;
        window.take(block.whole());
        Ok(interface)
    }

    fn statistics(
        &self,
        window: &mut Window,
        interfaces: &mut [FileInterface],
        block: Block,
    ) -> Result<(), ReadError> {
        let fixed = HEAD + describe::STATISTICS_FIXED;
        let bytes = self.whole_block(window, block, fixed, DESCRIPTION_LIMIT)?;
        let number = self.order.u32_at(bytes, HEAD);
        let interface = self.known(window, interfaces, number)?;
        let body = &window.ready()[HEAD..block.whole() - 4];
        let statistics = describe::statistics(interface, body, self.order)
            .map_err(|damage| window.corrupt(damage))?;
        interfaces[self.first_interface + to_usize(number)].statistics = Some(statistics);
        window.take(block.whole());
        Ok(())
    }

    /// Passes over a block without keeping it, however large it is.
    fn unknown(&self, window: &mut Window, block: Block) -> Result<(), ReadError> {
        if block.whole() < FRAME || !block.length.is_multiple_of(4) {
            return Err(window.corrupt(Damage::BlockLength {
                block_type: block.kind,
                claimed: block.length,
            }));
        }
        let offset = window.offset();
        let body = u64::from(block.length) - 4;
        let passed = window.skip(body)?;
        let ready = window.fill(4)?;
        let Some(tail) = window.ready().first_chunk::<4>() else {
            return Err(ReadError::Truncated {
                file: window.file().to_owned(),
                offset,
                what: "block",
                needed: body + 4,
                found: passed + to_u64(ready),
            });
        };
        let tail = self.order.u32_at(tail, 0);
        if tail != block.length {
            return Err(ReadError::Corrupt {
                file: window.file().to_owned(),
                offset,
                damage: Damage::BlockEnd {
                    head: block.length,
                    tail,
                },
            });
        }
        window.take(4);
        Ok(())
    }
}

/// The parts of a packet block, as offsets from its first byte.
struct BlockParts {
    number: u32,
    time_ns: u64,
    link_type: LinkType,
    wire_length: u32,
    data: Range<usize>,
    options: Range<usize>,
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
    if captured > USUAL_PACKET_LIMIT && captured > packet_limit(interface.snap_length) {
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
            room: u32::try_from(end - fixed).unwrap_or(u32::MAX),
        }));
    }
    let options = data.end.next_multiple_of(4).min(end)..end;
    Ok((data, options))
}

/// Reads a section header block and gives the section's byte order.
fn section_header(window: &mut Window) -> Result<ByteOrder, ReadError> {
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
        kind: SECTION_HEADER,
        length: order.u32_at(head, 4),
    };
    let section = Section {
        order,
        number: 0,
        first_interface: 0,
    };
    let bytes = section.whole_block(window, block, FIXED, DESCRIPTION_LIMIT)?;
    let version = (order.u16_at(bytes, 12), order.u16_at(bytes, 14));
    // 1.2 was written by some tools for what is 1.0.
    if version.0 != 1 || !matches!(version.1, 0 | 2) {
        return Err(ReadError::Unsupported {
            file: window.file().to_owned(),
            offset: window.offset(),
            variant: format!("pcapng version {}.{}", version.0, version.1),
        });
    }
    window.take(block.whole());
    Ok(order)
}
