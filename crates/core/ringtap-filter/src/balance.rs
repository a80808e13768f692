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
    /// Each balance without a file.
    const PLAIN: [Balance; 7] = [
        Balance::Everyone,
        Balance::Flow(Headers::Outer),
        Balance::Flow(Headers::Inner),
        Balance::Address(Headers::Outer),
        Balance::Address(Headers::Inner),
        Balance::Vlan,
        Balance::RoundRobin,
    ];

    /// The words of all balances without a file; the others are `program:FILE`.
    pub fn words() -> impl Iterator<Item = String> {
        Balance::PLAIN.iter().map(ToString::to_string)
    }

    /// The balance of this word; `None` if there is none.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        if let Some(file) = word.strip_prefix("program:") {
            return Some(Balance::Program(file.into()));
        }
        let mut plain = Balance::PLAIN.into_iter();
        plain.find(|balance| balance.to_string() == word)
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
            Balance::Program(file) => return write!(f, "program:{}", file.display()),
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
