// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequence number and time in sent payloads, with which a reader proves order and loss.
//!
//! A stamp is the first 18 bytes of the UDP or TCP payload, in network byte order: the letters `RT`,
//! the packet's number from 0 (u64), and its creation time in nanoseconds since 1970 (u64).

use ringtap_filter::Headers;
use ringtap_filter::hash::{self, Fragment, Link};

/// Bytes of a stamp.
pub const STAMP_BYTES: usize = 18;

const MAGIC: [u8; 2] = *b"RT";
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Data in a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the packet in its run, from 0.
    pub sequence: u64,
    /// Creation time in nanoseconds since 1970, by the sender's clock.
    pub time_ns: u64,
}

impl Stamp {
    /// The stamp as it stands in a payload.
    #[must_use]
    pub fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2..10].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[10..].copy_from_slice(&self.time_ns.to_be_bytes());
        bytes
    }
}

/// Loss and order of packets by the numbers in their stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampOrder {
    /// Packets so far.
    pub packets: u64,
    /// Number of the first of them.
    pub first: u64,
    /// Packets that have not come, though later ones have.
    pub missing: u64,
    /// Packets that came after later ones.
    pub out_of_order: u64,
    expected: Option<u64>,
}

impl StampOrder {
    /// Records the number of a packet.
    pub fn add(&mut self, sequence: u64) {
        self.packets += 1;
        if self.expected.is_none() {
            self.first = sequence;
        }
        let expected = self.expected.unwrap_or(sequence);
        if sequence < expected {
            // The packet was counted as missing when a later one came.
            self.out_of_order += 1;
            self.missing = self.missing.saturating_sub(1);
            return;
        }
        self.missing = self.missing.saturating_add(sequence - expected);
        self.expected = sequence.checked_add(1).or(Some(u64::MAX));
    }
}

/// Reads the stamp of a packet that starts with its Ethernet header; `None` without one.
///
/// Reads UDP and TCP behind the headers that [`hash`] passes over. Only these bytes need to be captured.
#[must_use]
pub fn parse(packet: &[u8]) -> Option<Stamp> {
    let ip = hash::ip(packet, Link::Ethernet, Headers::Outer)?;
    let is_later = |fragment: Fragment| !fragment.is_first;
    let header = match ip.protocol {
        _ if ip.fragment.is_some_and(is_later) => return None,
        UDP => 8,
        TCP => usize::from(ip.payload.get(12)? >> 4) * 4,
        _ => return None,
    };
    let (magic, rest) = ip.payload.get(header..)?.split_first_chunk()?;
    let (sequence, rest) = rest.split_first_chunk()?;
    let (time, _) = rest.split_first_chunk()?;
    (*magic == MAGIC).then_some(Stamp {
        sequence: u64::from_be_bytes(*sequence),
        time_ns: u64::from_be_bytes(*time),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        sequence: 0x0102_0304_0506_0708,
        time_ns: 1_700_000_000_123_456_789,
    };

    fn ipv4_udp(before: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 12];
        packet.extend_from_slice(before);
        packet.extend_from_slice(&[0x08, 0x00, 0x45]);
        packet.resize(packet.len() + 8, 0);
        packet.push(UDP);
        packet.resize(packet.len() + 10 + 8, 0);
        packet.extend_from_slice(&STAMP.to_bytes());
        packet
    }

    #[test]
    fn a_stamp_is_found_behind_up_to_two_vlan_tags() {
        for tags in [
            &[][..],
            &[0x81, 0, 0, 5],
            &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6],
        ] {
            assert_eq!(parse(&ipv4_udp(tags)), Some(STAMP));
        }
    }

    #[test]
    fn a_packet_cut_before_the_end_of_its_stamp_has_none() {
        let packet = ipv4_udp(&[]);
        for length in 0..packet.len() {
            assert_eq!(parse(&packet[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn a_later_fragment_has_no_stamp_whatever_its_bytes_say() {
        let mut packet = ipv4_udp(&[]);
        packet[14 + 7] = 3;
        assert_eq!(parse(&packet), None);
    }

    #[test]
    fn other_payloads_have_no_stamp() {
        let mut packet = ipv4_udp(&[]);
        packet[14 + 28] = b'X';
        assert_eq!(parse(&packet), None);
    }

    #[test]
    fn a_hole_in_the_numbers_is_loss() {
        let mut stamps = StampOrder::default();
        [0, 1, 4, 5]
            .into_iter()
            .for_each(|number| stamps.add(number));
        assert_eq!((stamps.missing, stamps.out_of_order), (2, 0));
    }

    #[test]
    fn a_late_packet_is_out_of_order_and_not_lost() {
        let mut stamps = StampOrder::default();
        [0, 2, 1, 3]
            .into_iter()
            .for_each(|number| stamps.add(number));
        assert_eq!((stamps.missing, stamps.out_of_order), (0, 1));
    }

    #[test]
    fn numbers_that_no_sender_gives_are_counted_too() {
        let mut stamps = StampOrder::default();
        [0, u64::MAX, u64::MAX, 0]
            .into_iter()
            .for_each(|number| stamps.add(number));
        assert_eq!((stamps.packets, stamps.out_of_order), (4, 1));
    }
}
