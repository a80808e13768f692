// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the members of a group share its packets, and the words for it.

use std::fmt;
use std::path::PathBuf;

/// How the members of a group share its packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Every packet is in bucket 0.
    #[default]
    Everyone,
    /// By the flow hash: both directions and all fragments of a connection stay together.
    Flow(Headers),
    /// By the hash of the two addresses.
    Address(Headers),
    /// By the outermost VLAN tag; untagged packets count as VLAN 0.
    Vlan,
    /// The next bucket for each packet, on each lane separately.
    RoundRobin,
    /// By the result of the user's eBPF program in this object file.
    Program(PathBuf),
}

/// Which headers of a tunnelled packet the hash covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headers {
    /// The headers of the tunnel.
    #[default]
    Outer,
    /// The headers inside tunnels; see [`crate::hash`].
    Inner,
}

impl Balance {
    /// The balance of this word; `None` if there is none.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "broadcast" => Balance::Everyone,
            "flow" => Balance::Flow(Headers::Outer),
            "inner-flow" => Balance::Flow(Headers::Inner),
            "address" => Balance::Address(Headers::Outer),
            "inner-address" => Balance::Address(Headers::Inner),
            "vlan" => Balance::Vlan,
            "round-robin" => Balance::RoundRobin,
            other => Balance::Program(other.strip_prefix("program:")?.into()),
        })
    }
}

/// The word of [`Balance::from_word`].
impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Balance::Everyone => "broadcast",
            Balance::Flow(Headers::Outer) => "flow",
            Balance::Flow(Headers::Inner) => "inner-flow",
            Balance::Address(Headers::Outer) => "address",
            Balance::Address(Headers::Inner) => "inner-address",
            Balance::Vlan => "vlan",
            Balance::RoundRobin => "round-robin",
            Balance::Program(object) => return write!(f, "program:{}", object.display()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_balance_has_one_word() {
        for word in [
            "broadcast",
            "flow",
            "inner-flow",
            "address",
            "inner-address",
            "vlan",
            "round-robin",
            "program:/tmp/steer.o",
        ] {
            assert_eq!(Balance::from_word(word).unwrap().to_string(), word);
        }
        assert_eq!(Balance::from_word("hash"), None);
    }
}
