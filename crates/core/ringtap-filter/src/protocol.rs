// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of IP protocols in texts.

/// Protocols with a name, and their numbers.
const PROTOCOLS: [(&str, u8); 5] = [
    ("tcp", 6),
    ("udp", 17),
    ("sctp", 132),
    ("icmp", 1),
    ("icmp6", 58),
];

/// Name of a protocol in texts, if it has one.
#[must_use]
pub fn protocol_name(number: u8) -> Option<&'static str> {
    let known = PROTOCOLS.iter().find(|(_, known)| *known == number);
    known.map(|(name, _)| *name)
}

/// Number of the protocol with this name.
pub(crate) fn protocol_number(name: &str) -> Option<u8> {
    let known = PROTOCOLS.iter().find(|(known, _)| *known == name);
    known.map(|(_, number)| *number)
}
