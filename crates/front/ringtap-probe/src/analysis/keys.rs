// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of a packet's key by which analyses count.

use std::net::IpAddr;

use ringtap_pool::number::to_u64;

use crate::packet::PacketKey;

/// A part of a packet's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyField {
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// Both addresses, in either order.
    Pair,
    /// Protocol and the lower of both ports, mostly the server's.
    Port,
    /// Addresses, ports and protocol, in either order.
    Flow,
    /// Network of the source: this many bits of an IPv4 address, twice as many of an IPv6 address.
    SourceNet(u8),
    /// Network of the destination, likewise.
    DestinationNet(u8),
}

impl KeyField {
    /// All parts without a number.
    pub(crate) const WORDS: [KeyField; 5] = [
        KeyField::Source,
        KeyField::Destination,
        KeyField::Pair,
        KeyField::Port,
        KeyField::Flow,
    ];

    /// The part's word in results.
    pub fn word(self) -> &'static str {
        match self {
            KeyField::SourceNet(_) => "source_net",
            KeyField::DestinationNet(_) => "destination_net",
            KeyField::Source => "source",
            KeyField::Destination => "destination",
            KeyField::Pair => "pair",
            KeyField::Port => "port",
            KeyField::Flow => "flow",
        }
    }

    /// The part that a configuration names: a word, for networks with the number of bits: `source/24`.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let Some((word, bits)) = text.split_once('/') else {
            let found = KeyField::WORDS.iter().find(|part| part.word() == text);
            return found.copied();
        };
        let bits: u8 = bits.parse().ok().filter(|bits| (1..=32).contains(bits))?;
        match word {
            "source" => Some(KeyField::SourceNet(bits)),
            "destination" => Some(KeyField::DestinationNet(bits)),
            _ => None,
        }
    }

    /// The key without what does not count.
    pub(crate) fn select(self, key: &PacketKey) -> PacketKey {
        let nothing = PacketKey {
            source: [0; 2],
            destination: [0; 2],
            ports: (0, 0),
            vlan: 0,
            protocol: 0,
            outside: 0,
            ..*key
        };
        let reversed = key.reversed();
        let ordered = if (key.source, key.ports.0) <= (reversed.source, reversed.ports.0) {
            *key
        } else {
            reversed
        };
        match self {
            KeyField::Source => PacketKey {
                source: key.source,
                ..nothing
            },
            KeyField::Destination => PacketKey {
                destination: key.destination,
                ..nothing
            },
            KeyField::Pair => PacketKey {
                source: key.source.min(key.destination),
                destination: key.source.max(key.destination),
                ..nothing
            },
            KeyField::Port => PacketKey {
                ports: (key.ports.0.min(key.ports.1), 0),
                protocol: key.protocol,
                is_ipv6: false,
                ..nothing
            },
            KeyField::Flow => PacketKey {
                vlan: 0,
                outside: 0,
                ..ordered
            },
            KeyField::SourceNet(bits) => PacketKey {
                source: network(key.source, bits, key.is_ipv6),
                ..nothing
            },
            KeyField::DestinationNet(bits) => PacketKey {
                destination: network(key.destination, bits, key.is_ipv6),
                ..nothing
            },
        }
    }

    /// A key of this part as text.
    pub(super) fn text(self, key: &PacketKey) -> String {
        let end = |address: IpAddr, port: u16| match address {
            IpAddr::V4(address) => format!("{address}:{port}"),
            IpAddr::V6(address) => format!("[{address}]:{port}"),
        };
        let (source, destination) = (key.address(key.source), key.address(key.destination));
        match self {
            KeyField::Source => source.to_string(),
            KeyField::Destination => destination.to_string(),
            KeyField::SourceNet(bits) if key.is_ipv6 => format!("{source}/{}", 2 * bits),
            KeyField::DestinationNet(bits) if key.is_ipv6 => format!("{destination}/{}", 2 * bits),
            KeyField::SourceNet(bits) => format!("{source}/{bits}"),
            KeyField::DestinationNet(bits) => format!("{destination}/{bits}"),
            KeyField::Pair => format!("{source} {destination}"),
            KeyField::Port => format!("{}/{}", key.ports.0, protocol_word(key.protocol)),
            KeyField::Flow => format!(
                "{} {} {}",
                protocol_word(key.protocol),
                end(source, key.ports.0),
                end(destination, key.ports.1)
            ),
        }
    }
}

/// The first bits of an address: `bits` of IPv4, twice as many of IPv6.
fn network(address: [u64; 2], bits: u8, is_ipv6: bool) -> [u64; 2] {
    let host_bits = if is_ipv6 {
        128 - 2 * u32::from(bits)
    } else {
        32 - u32::from(bits)
    };
    let mask = u128::MAX << host_bits;
    let halves = |number: u128| [number >> 64, number & u128::from(u64::MAX)];
    let [upper, lower] = halves(mask).map(to_u64);
    [address[0] & upper, address[1] & lower]
}

/// Name of an IP protocol, as Zeek has it; the number for those without one.
pub fn protocol_word(protocol: u8) -> String {
    match protocol {
        1 | 58 => "icmp".into(),
        6 => "tcp".into(),
        17 => "udp".into(),
        132 => "sctp".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_first_bits_of_an_address() {
        let key = |words: [u64; 2], is_ipv6| PacketKey {
            source: words,
            destination: [0; 2],
            ports: (1, 2),
            vlan: 3,
            protocol: 6,
            is_ipv6,
            outside: 0,
        };
        let part = KeyField::from_text("source/20").expect("a part");
        let text = |key| part.text(&part.select(&key));
        assert_eq!(text(key([0, 0x0a01_ffff], false)), "10.1.240.0/20");
        let address = [0x2001_0db8_ffff_ffff, u64::MAX];
        assert_eq!(text(key(address, true)), "2001:db8:ff00::/40");
        let all = KeyField::SourceNet(32);
        assert_eq!(
            all.text(&all.select(&key(address, true))),
            "2001:db8:ffff:ffff::/64"
        );
        for wrong in ["source/0", "source/33", "pair/8", "source/", "mac"] {
            assert_eq!(KeyField::from_text(wrong), None, "{wrong}");
        }
    }
}
