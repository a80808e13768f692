// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the packets of one block of a TPACKET_V3 ring.
//!
//! Invariants
//! - Every offset is checked against the block: an invalid block gives fewer packets and never
//!   panics.

/// Offsets in a block's header.
const PACKET_COUNT: usize = 12;
const FIRST_PACKET: usize = 16;

/// Offsets in a packet's header, `struct tpacket3_hdr`.
mod header {
    pub(super) const NEXT: usize = 0;
    pub(super) const SECONDS: usize = 4;
    pub(super) const NANOSECONDS: usize = 8;
    pub(super) const CAPTURED: usize = 12;
    pub(super) const WIRE: usize = 16;
    pub(super) const STATUS: usize = 20;
    pub(super) const DATA: usize = 24;
    pub(super) const VLAN_TCI: usize = 32;
    pub(super) const VLAN_TPID: usize = 36;
    pub(super) const SIZE: usize = 48;
    /// `sll_pkttype` of the address that follows.
    pub(super) const PACKET_TYPE: usize = SIZE + 10;
}

const CHECKSUM_NOT_READY: u32 = 1 << 3;
const VLAN_VALID: u32 = 1 << 4;
const VLAN_TPID_VALID: u32 = 1 << 6;
const MERGED_TCP: u32 = 1 << 8;
const NIC_TIME: u32 = 1 << 31;
const PACKET_OUTGOING: u8 = 4;
const TPID_8021Q: u16 = 0x8100;

/// One packet in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RingFrame<'a> {
    /// Captured bytes from the link header on, without a tag that the kernel passes separately.
    pub(super) data: &'a [u8],
    /// Length on the wire without that tag.
    pub(super) wire_length: u32,
    pub(super) time_ns: u64,
    /// The VLAN tag that the kernel passes separately: TPID and TCI as on the wire.
    pub(super) tag: Option<[u8; 4]>,
    pub(super) is_outgoing: bool,
    pub(super) is_merged: bool,
    pub(super) lacks_checksum: bool,
    /// `time_ns` is of the NIC's clock.
    pub(super) has_nic_time: bool,
}

/// Number of packets in the block, as the kernel reports it.
pub(super) fn count(block: &[u8]) -> u32 {
    u32_at(block, PACKET_COUNT).unwrap_or(0)
}

/// The packets of a block; ends early if the block is invalid.
pub(super) fn frames(block: &[u8]) -> impl Iterator<Item = RingFrame<'_>> {
    let mut left = count(block);
    let mut at = u32_at(block, FIRST_PACKET).and_then(index);
    std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        let packet = block.get(at?..)?;
        let next = u32_at(packet, header::NEXT).and_then(index)?;
        at = at?.checked_add(next);
        // A zero offset would read the same packet again.
        if next == 0 {
            left = 0;
        }
        frame(packet)
    })
}

fn frame(packet: &[u8]) -> Option<RingFrame<'_>> {
    let status = u32_at(packet, header::STATUS)?;
    let start = usize::from(u16_at(packet, header::DATA)?);
    let captured = u32_at(packet, header::CAPTURED).and_then(index)?;
    let seconds = u64::from(u32_at(packet, header::SECONDS)?);
    let nanoseconds = u64::from(u32_at(packet, header::NANOSECONDS)?);
    Some(RingFrame {
        data: packet.get(start..)?.get(..captured)?,
        wire_length: u32_at(packet, header::WIRE)?,
        time_ns: seconds * 1_000_000_000 + nanoseconds,
        tag: tag(packet, status),
        is_outgoing: *packet.get(header::PACKET_TYPE)? == PACKET_OUTGOING,
        is_merged: status & MERGED_TCP != 0,
        lacks_checksum: status & CHECKSUM_NOT_READY != 0,
        has_nic_time: status & NIC_TIME != 0,
    })
}

fn tag(packet: &[u8], status: u32) -> Option<[u8; 4]> {
    if status & VLAN_VALID == 0 {
        return None;
    }
    let tpid = match status & VLAN_TPID_VALID {
        0 => TPID_8021Q,
        _ => u16_at(packet, header::VLAN_TPID)?,
    };
    // The kernel stores the 16-bit tag in a 32-bit field.
    let tci = u16::try_from(u32_at(packet, header::VLAN_TCI)? & 0xffff).ok()?;
    let ([t0, t1], [c0, c1]) = (tpid.to_be_bytes(), tci.to_be_bytes());
    Some([t0, t1, c0, c1])
}

fn index(value: u32) -> Option<usize> {
    usize::try_from(value).ok()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn offsets_are_those_of_the_kernels_structures() {
        use libc::{sockaddr_ll, tpacket_block_desc, tpacket_hdr_variant1, tpacket3_hdr};
        let variant = 28;
        assert_eq!(libc::TP_STATUS_TS_RAW_HARDWARE, NIC_TIME);
        assert_eq!(size_of::<tpacket3_hdr>(), header::SIZE);
        assert_eq!(offset_of!(tpacket3_hdr, tp_snaplen), header::CAPTURED);
        assert_eq!(offset_of!(tpacket3_hdr, tp_len), header::WIRE);
        assert_eq!(offset_of!(tpacket3_hdr, tp_status), header::STATUS);
        assert_eq!(offset_of!(tpacket3_hdr, tp_mac), header::DATA);
        assert_eq!(
            variant + offset_of!(tpacket_hdr_variant1, tp_vlan_tci),
            header::VLAN_TCI
        );
        assert_eq!(
            variant + offset_of!(tpacket_hdr_variant1, tp_vlan_tpid),
            header::VLAN_TPID
        );
        assert_eq!(
            header::SIZE + offset_of!(sockaddr_ll, sll_pkttype),
            header::PACKET_TYPE
        );
        assert_eq!(offset_of!(tpacket_block_desc, hdr) + 4, PACKET_COUNT);
    }

    fn put(block: &mut [u8], at: usize, value: u32) {
        block[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    /// A block with two packets of three bytes, the first one tagged.
    fn block() -> Vec<u8> {
        let mut block = vec![0; 512];
        put(&mut block, PACKET_COUNT, 2);
        put(&mut block, FIRST_PACKET, 48);
        for (at, next) in [(48, 160), (208, 0)] {
            put(&mut block, at + header::NEXT, next);
            put(&mut block, at + header::SECONDS, 1);
            put(&mut block, at + header::NANOSECONDS, 2);
            put(&mut block, at + header::CAPTURED, 3);
            put(&mut block, at + header::WIRE, 60);
            block[at + header::DATA..][..2].copy_from_slice(&80_u16.to_ne_bytes());
            block[at + 80..at + 83].copy_from_slice(b"abc");
        }
        let status = VLAN_VALID | VLAN_TPID_VALID | CHECKSUM_NOT_READY | NIC_TIME;
        put(&mut block, 48 + header::STATUS, status);
        put(&mut block, 48 + header::VLAN_TCI, 0x2007);
        block[48 + header::VLAN_TPID..][..2].copy_from_slice(&0x88a8_u16.to_ne_bytes());
        block[208 + header::PACKET_TYPE] = PACKET_OUTGOING;
        block
    }

    #[test]
    fn packets_are_read_with_what_is_known_of_them() {
        let block = block();
        let found: Vec<_> = frames(&block).collect();
        let [tagged, outgoing] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!((tagged.data, tagged.wire_length), (b"abc".as_slice(), 60));
        assert_eq!(tagged.time_ns, 1_000_000_002);
        assert_eq!(tagged.tag, Some([0x88, 0xa8, 0x20, 0x07]));
        assert!(tagged.lacks_checksum && !tagged.is_outgoing);
        assert!(tagged.has_nic_time && !outgoing.has_nic_time);
        assert!(outgoing.is_outgoing && outgoing.tag.is_none());
    }

    #[test]
    fn a_block_that_is_cut_off_gives_fewer_packets() {
        let block = block();
        assert_eq!(frames(&block[..290]).count(), 1);
        assert_eq!(frames(&block[..20]).count(), 0);
    }

    proptest! {
        #[test]
        fn no_block_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..600), first in 0_u32..600) {
            if bytes.len() > 20 {
                put(&mut bytes, FIRST_PACKET, first);
            }
            for frame in frames(&bytes).take(1000) {
                prop_assert!(frame.data.len() <= bytes.len());
            }
        }
    }
}
