// SPDX-License-Identifier: MIT OR Apache-2.0
//! From what the kernel calls a link to what files and libpcap call it.
#![forbid(unsafe_code)]

use crate::files::LinkType;

const IEEE802_11: LinkType = LinkType(105);
const IEEE802_11_RADIOTAP: LinkType = LinkType(127);
const NETLINK: LinkType = LinkType(253);

impl LinkType {
    /// What a packet socket gives has no type of its own (PPP, CAN, ...); assigned to nothing.
    pub const UNKNOWN: Self = Self(u16::MAX);

    /// What packets of an interface of this kernel type (`ARPHRD_...`) start with.
    ///
    /// Interfaces without a header of their own carry bare IP packets; so do all tunnels of IP.
    pub(crate) fn of_hardware(hardware: u16) -> Self {
        match hardware {
            1 | 772 => Self::ETHERNET,
            768 | 769 | 776 | 778 | 823 | 519 | 65534 => Self::RAW_IP,
            801 => IEEE802_11,
            803 => IEEE802_11_RADIOTAP,
            824 => NETLINK,
            _ => Self::UNKNOWN,
        }
    }

    /// The number that libpcap's functions use for it on Linux, which differs for old types.
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

    /// Whether packets start with an Ethernet header, so that VLAN tags can be put back.
    #[must_use]
    pub fn is_ethernet(self) -> bool {
        self == Self::ETHERNET
    }
}

#[cfg(test)]
mod tests {
    use super::LinkType;

    #[test]
    fn loopback_is_ethernet_and_tunnels_are_raw() {
        assert_eq!(LinkType::of_hardware(1), LinkType::ETHERNET);
        assert_eq!(LinkType::of_hardware(772), LinkType::ETHERNET);
        assert_eq!(LinkType::of_hardware(65534), LinkType::RAW_IP);
        assert_eq!(LinkType::of_hardware(512), LinkType::UNKNOWN);
        assert_eq!(LinkType::RAW_IP.dlt(), 12);
        assert_eq!(LinkType::ETHERNET.dlt(), 1);
    }
}
