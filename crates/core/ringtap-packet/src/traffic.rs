// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generated traffic in the user's terms.
//!
//! Sizes are those on the wire, including the 4 bytes of the frame check sequence: of a 64-byte
//! packet, 60 bytes are in memory and visible to capture programs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{address::MacAddress, frames, stamp::STAMP_BYTES};

/// The frame check sequence, which the device appends.
pub const FCS_BYTES: u32 = 4;

/// Bytes a frame takes on the wire beyond those in memory: preamble 8, checksum (FCS) 4, gap 12.
pub const WIRE_OVERHEAD_BYTES: u64 = 24;

const SMALLEST_BYTES: u32 = 64;
const LARGEST_BYTES: u32 = 65_535;
const MAX_FLOWS: u32 = 1 << 24;

/// The simple IMIX: of twelve packets seven are small, four medium and one large, evenly mixed.
///
/// Test equipment commonly uses the ratio 7:4:1; no standard fixes it or the sizes (RFC 6985 only
/// names mixes). Vendors' medium sizes range from 570 to 594 bytes.
pub(crate) const IMIX: [u32; 12] = [64, 570, 64, 64, 570, 64, 64, 570, 64, 1518, 570, 64];

/// Packet sizes in bytes on the wire, including the frame check sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// One size for all packets.
    Fixed(u32),
    /// The simple IMIX: 64, 570 and 1518 bytes, 7:4:1. A size too small for the headers is raised to
    /// the minimum.
    Imix,
}

/// Transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportProtocol {
    /// UDP.
    Udp,
    /// TCP segments with ACK set, without a connection.
    Tcp,
}

/// Packets to generate. The default is 64-byte UDP over IPv4 between two addresses of the range
/// reserved for benchmarks (RFC 2544), to an unused MAC address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Packet sizes.
    pub sizes: Sizes,
    /// Number of flows, used in turn. Flow `n` has source address and source port raised by `n` (the
    /// port starts again after 65535).
    pub flows: u32,
    /// VLAN identifiers, outer first; two make an 802.1ad tag and an 802.1Q tag.
    pub vlans: Vec<u16>,
    /// UDP or TCP.
    pub transport: TransportProtocol,
    /// Source MAC address; the interface's own if absent.
    pub source_mac: Option<MacAddress>,
    /// Destination MAC address.
    pub destination_mac: MacAddress,
    /// Source address of flow 0; selects IPv4 or IPv6.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// Source port of flow 0.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Whether payloads start with a [stamp](super::stamp).
    pub stamp: bool,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            sizes: Sizes::Fixed(SMALLEST_BYTES),
            flows: 1,
            vlans: Vec::new(),
            transport: TransportProtocol::Udp,
            source_mac: None,
            destination_mac: MacAddress([2, 0, 0, 0, 0, 2]),
            source: Ipv4Addr::new(198, 18, 0, 1).into(),
            destination: Ipv4Addr::new(198, 19, 0, 1).into(),
            source_port: 10_000,
            destination_port: 9,
            stamp: false,
        }
    }
}

/// Why packets cannot be generated.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrafficError {
    /// The headers do not fit into the packet.
    #[error(
        "{size_bytes}-byte packets have no room for these headers{}: the least is {min_bytes}",
        if *.stamp { " and a stamp" } else { "" }
    )]
    TooSmall {
        size_bytes: u32,
        min_bytes: u32,
        stamp: bool,
    },
    /// The size exceeds IP's limit.
    #[error("{size_bytes}-byte packets are too large: the most is {LARGEST_BYTES}")]
    TooLarge { size_bytes: u32 },
    /// The number of flows is 0 or too large.
    #[error("{flows} flows are not possible: ask for 1 to {MAX_FLOWS}")]
    Flows { flows: u32 },
    /// The VLAN number does not exist.
    #[error("{id} is not a VLAN: identifiers go from 0 to 4094")]
    Vlan { id: u16 },
    /// More tags than supported.
    #[error("{count} VLAN tags are too many: at most two, the outer first")]
    VlanCount { count: usize },
    /// Source and destination are of different address families.
    #[error("{from} cannot send to {to}: both addresses must be IPv4, or both IPv6")]
    Families { from: IpAddr, to: IpAddr },
}

impl Traffic {
    /// Default addresses: the IPv4 or IPv6 ranges for benchmarks (RFC 5180).
    #[must_use]
    pub fn benchmark_addresses(ipv6: bool) -> (IpAddr, IpAddr) {
        if !ipv6 {
            let this = Self::default();
            return (this.source, this.destination);
        }
        let network = |number| Ipv6Addr::new(0x2001, 2, 0, number, 0, 0, 0, 1).into();
        (network(0), network(1))
    }

    /// Smallest packet size that holds headers and stamp, on the wire.
    #[must_use]
    pub fn min_size_bytes(&self) -> u32 {
        let stamp = if self.stamp { STAMP_BYTES } else { 0 };
        let used = u32::try_from(frames::offsets(self).payload + stamp).unwrap_or(u32::MAX);
        used.saturating_add(FCS_BYTES).max(SMALLEST_BYTES)
    }

    /// Packet sizes on the wire, in the order in which they repeat.
    pub fn cycle(&self) -> Vec<u32> {
        match self.sizes {
            Sizes::Fixed(size) => vec![size],
            Sizes::Imix => IMIX.map(|size| size.max(self.min_size_bytes())).to_vec(),
        }
    }

    /// Size of the largest packet, on the wire.
    #[must_use]
    pub fn largest_size_bytes(&self) -> u32 {
        self.cycle().into_iter().max().unwrap_or(SMALLEST_BYTES)
    }

    /// Checks whether these packets can be generated.
    ///
    /// # Errors
    ///
    /// The first problem found.
    pub fn check(&self) -> Result<(), TrafficError> {
        if let Some(&id) = self.vlans.iter().find(|id| **id > 4094) {
            return Err(TrafficError::Vlan { id });
        }
        if self.vlans.len() > 2 {
            let count = self.vlans.len();
            return Err(TrafficError::VlanCount { count });
        }
        if self.flows == 0 || self.flows > MAX_FLOWS {
            return Err(TrafficError::Flows { flows: self.flows });
        }
        if self.source.is_ipv6() != self.destination.is_ipv6() {
            let (from, to) = (self.source, self.destination);
            return Err(TrafficError::Families { from, to });
        }
        let min_bytes = self.min_size_bytes();
        for size_bytes in self.cycle() {
            if size_bytes < min_bytes {
                let stamp = self.stamp;
                return Err(TrafficError::TooSmall {
                    size_bytes,
                    min_bytes,
                    stamp,
                });
            }
            if size_bytes > LARGEST_BYTES {
                return Err(TrafficError::TooLarge { size_bytes });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_fits_into_the_smallest_udp_packet_over_ipv4() {
        let traffic = Traffic {
            stamp: true,
            ..Traffic::default()
        };
        assert_eq!(traffic.min_size_bytes(), 64);
        assert_eq!(traffic.check(), Ok(()));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_least_that_does() {
        let (source, destination) = Traffic::benchmark_addresses(true);
        let traffic = Traffic {
            stamp: true,
            transport: TransportProtocol::Tcp,
            vlans: vec![1, 2],
            source,
            destination,
            ..Traffic::default()
        };
        let refused = TrafficError::TooSmall {
            size_bytes: 64,
            min_bytes: 82 + 18 + 4,
            stamp: true,
        };
        assert_eq!(traffic.check(), Err(refused));
    }

    #[test]
    fn the_mix_is_seven_to_four_to_one() {
        let count = |size| IMIX.iter().filter(|&&s| s == size).count();
        assert_eq!((count(64), count(570), count(1518)), (7, 4, 1));
        let mix = Traffic {
            sizes: Sizes::Imix,
            ..Traffic::default()
        };
        assert_eq!(mix.largest_size_bytes(), 1518);
    }

    #[test]
    fn the_largest_numbers_are_possible() {
        let traffic = Traffic {
            vlans: vec![4094],
            sizes: Sizes::Fixed(128),
            flows: MAX_FLOWS,
            ..Traffic::default()
        };
        assert_eq!(traffic.check(), Ok(()));
    }

    #[test]
    fn nonsense_is_refused() {
        let default = Traffic::default;
        for traffic in [
            Traffic {
                flows: 0,
                ..default()
            },
            Traffic {
                vlans: vec![4095],
                ..default()
            },
            Traffic {
                vlans: vec![1, 2, 3],
                ..default()
            },
            Traffic {
                destination: Ipv6Addr::LOCALHOST.into(),
                ..default()
            },
            Traffic {
                sizes: Sizes::Fixed(63),
                ..default()
            },
            Traffic {
                sizes: Sizes::Fixed(65_536),
                ..default()
            },
        ] {
            assert!(traffic.check().is_err(), "{traffic:?}");
        }
    }
}
