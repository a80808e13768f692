// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terms: what an index records of each block, and what a query asks for.

use std::ops::RangeInclusive;

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
}

/// Numbers below it in an Ethernet frame are lengths.
pub(crate) const FIRST_ETHER_TYPE: u16 = 0x600;

impl TermKind {
    /// All kinds in the order of their numbers in the file.
    pub(crate) const ALL: [TermKind; 6] = [
        TermKind::EtherType,
        TermKind::Vlan,
        TermKind::Protocol,
        TermKind::Port,
        TermKind::Ipv4,
        TermKind::Ipv6,
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
            TermKind::Ipv4 => 4,
            TermKind::Ipv6 => 16,
        }
    }
}

/// Values of one kind, one of which has to occur.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TermRange {
    pub(crate) kind: TermKind,
    pub(crate) values: RangeInclusive<u128>,
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
        assert_eq!(TermKind::from_number(6), None);
    }
}
