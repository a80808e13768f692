// SPDX-License-Identifier: MIT OR Apache-2.0
//! Link types: the first header of each packet.

use std::fmt;

/// First header of each packet: a LINKTYPE_ number of the pcap registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// No link header: IPv4 or IPv6.
    pub const RAW_IP: Self = Self(101);
    /// Linux "any" device, first version.
    pub const LINUX_SLL: Self = Self(113);
    /// Linux "any" device, second version.
    pub const LINUX_SLL2: Self = Self(276);
    /// Any other link (PPP, CAN, ...); the registry does not assign this number.
    pub const UNKNOWN: Self = Self(u16::MAX);

    const IEEE802_11: Self = Self(105);
    const IEEE802_11_RADIOTAP: Self = Self(127);
    const NETLINK: Self = Self(253);

    /// Link type of an interface of this kernel type (`ARPHRD_...`).
    ///
    /// Interfaces without a header of their own, and IP tunnels, carry bare IP packets.
    #[must_use]
    pub fn from_hardware(hardware: u16) -> Self {
        match hardware {
            1 | 772 => Self::ETHERNET,
            768 | 769 | 776 | 778 | 823 | 519 | 65534 => Self::RAW_IP,
            801 => Self::IEEE802_11,
            803 => Self::IEEE802_11_RADIOTAP,
            824 => Self::NETLINK,
            _ => Self::UNKNOWN,
        }
    }

    /// Link type of a file that states this number. Some writers state the number of libpcap's functions for raw IP
    /// (12, which no link type of files has).
    #[must_use]
    pub fn from_file(number: u16) -> Self {
        match number {
            12 => Self::RAW_IP,
            other => Self(other),
        }
    }

    /// The number of this link type in libpcap's functions on Linux; differs for old types.
    #[must_use]
    pub fn dlt(self) -> u16 {
        match self.0 {
            100 => 11,
            101 => 12,
            102 => 13,
            103 => 14,
            106 => 19,
            other => other,
        }
    }

    /// Whether packets start with an Ethernet header, in which VLAN tags can be restored.
    #[must_use]
    pub fn is_ethernet(self) -> bool {
        self == Self::ETHERNET
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ETHERNET => f.write_str("Ethernet"),
            Self::RAW_IP => f.write_str("raw IP"),
            Self::LINUX_SLL => f.write_str("Linux cooked v1"),
            Self::LINUX_SLL2 => f.write_str("Linux cooked v2"),
            Self(number) => write!(f, "link type {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LinkType;

    #[test]
    fn loopback_is_ethernet_and_tunnels_are_raw() {
        assert_eq!(LinkType::from_hardware(1), LinkType::ETHERNET);
        assert_eq!(LinkType::from_hardware(772), LinkType::ETHERNET);
        assert_eq!(LinkType::from_hardware(65534), LinkType::RAW_IP);
        assert_eq!(LinkType::from_hardware(801), LinkType::IEEE802_11);
        assert_eq!(LinkType::from_hardware(803), LinkType::IEEE802_11_RADIOTAP);
        assert_eq!(LinkType::from_hardware(824), LinkType::NETLINK);
        assert_eq!(LinkType::from_hardware(512), LinkType::UNKNOWN);
        assert_eq!(LinkType::RAW_IP.dlt(), 12);
        assert_eq!(LinkType::ETHERNET.dlt(), 1);
        assert_eq!(LinkType::from_file(12), LinkType::RAW_IP);
        assert_eq!(LinkType::from_file(113), LinkType::LINUX_SLL);
    }
}
