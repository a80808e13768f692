// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terms: what an index records of each block, and what a query asks for.

use ringtap_packet::CommunityId;

/// Kind of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TermKind {
    /// Ethertype; 0 stands for all numbers below 0x600, which are lengths of frames.
    EtherType,
    /// Number of a VLAN.
    Vlan,
    /// Protocol of an IPv4 header, or "next header" of an IPv6 or fragment header.
    Protocol,
    /// Port of TCP, UDP or SCTP.
    Port,
    /// IPv4 address, also one in an ARP or RARP packet.
    Ipv4,
    /// IPv6 address.
    Ipv6,
    /// First bytes of the Community ID of the innermost packet, of seed 0.
    CommunityId,
}

/// Numbers below it in an Ethernet frame are lengths.
pub(crate) const FIRST_ETHER_TYPE: u16 = 0x600;

impl TermKind {
    /// All kinds in the order of their numbers in the file.
    pub(crate) const ALL: [TermKind; 7] = [
        TermKind::EtherType,
        TermKind::Vlan,
        TermKind::Protocol,
        TermKind::Port,
        TermKind::Ipv4,
        TermKind::Ipv6,
        TermKind::CommunityId,
    ];

    /// The number in the file.
    pub(crate) fn number(self) -> u8 {
        match self {
            TermKind::EtherType => 0,
            TermKind::Vlan => 1,
            TermKind::Protocol => 2,
            TermKind::Port => 3,
            TermKind::Ipv4 => 4,
            TermKind::Ipv6 => 5,
            TermKind::CommunityId => 6,
        }
    }

    /// The kind of a number in the file.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        TermKind::ALL.get(usize::from(number)).copied()
    }

    /// Bytes of a value in the file.
    pub(crate) fn width(self) -> usize {
        match self {
            TermKind::Protocol => 1,
            TermKind::EtherType | TermKind::Vlan | TermKind::Port => 2,
            TermKind::Ipv4 | TermKind::CommunityId => 4,
            TermKind::Ipv6 => 16,
        }
    }
}

/// Values of one kind, one of which has to occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TermRange {
    pub(crate) kind: TermKind,
    pub(crate) min: u128,
    pub(crate) max: u128,
}

impl TermRange {
    /// A range of one value.
    pub(crate) fn single(kind: TermKind, value: u128) -> Self {
        TermRange {
            kind,
            min: value,
            max: value,
        }
    }
}

/// The bytes of a Community ID that the index has: two IDs of a million have them in common once in 4,000 segments,
/// which costs a block.
pub(crate) fn id_prefix(CommunityId(id): CommunityId) -> u32 {
    u32::from_be_bytes(id.first_chunk().copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_kinds_are_their_places() {
        for (place, kind) in (0..).zip(TermKind::ALL) {
            assert_eq!(
                (kind.number(), TermKind::from_number(place)),
                (place, Some(kind))
            );
        }
        assert_eq!(TermKind::from_number(7), None);
    }
}
