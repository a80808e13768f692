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
    /// Each balance without a file: its word, and its bit in the kernel's programs with the name in C.
    const PLAIN: [(Balance, &str, u32, &str); 7] = [
        (Balance::Everyone, "broadcast", 0, ""),
        (Balance::Flow(Headers::Outer), "flow", 0x01, "RT_BY_FLOW"),
        (
            Balance::Flow(Headers::Inner),
            "inner-flow",
            0x02,
            "RT_BY_INNER_FLOW",
        ),
        (
            Balance::Address(Headers::Outer),
            "address",
            0x04,
            "RT_BY_ADDRESS",
        ),
        (
            Balance::Address(Headers::Inner),
            "inner-address",
            0x08,
            "RT_BY_INNER_ADDRESS",
        ),
        (Balance::Vlan, "vlan", 0x10, "RT_BY_VLAN"),
        (Balance::RoundRobin, "round-robin", 0x20, "RT_BY_TURN"),
    ];
    const PROGRAM_BIT: u32 = 0x40;

    fn plain(&self) -> Option<&'static (Balance, &'static str, u32, &'static str)> {
        Balance::PLAIN.iter().find(|(balance, ..)| balance == self)
    }

    /// The words of all balances without a file; the others are `program:FILE`.
    pub fn words() -> impl Iterator<Item = &'static str> {
        Balance::PLAIN.iter().map(|(_, word, ..)| *word)
    }

    /// The bits of all balances, with their names in C.
    pub fn bits() -> impl Iterator<Item = (&'static str, u32)> {
        let plain = Balance::PLAIN
            .iter()
            .skip(1)
            .map(|(.., bit, name)| (*name, *bit));
        plain.chain([("RT_BY_PROGRAM", Balance::PROGRAM_BIT)])
    }

    /// Its bit in the kernel's programs.
    #[must_use]
    pub fn bit(&self) -> u32 {
        self.plain()
            .map_or(Balance::PROGRAM_BIT, |(.., bit, _)| *bit)
    }

    /// The balance of this word; `None` if there is none.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        if let Some(file) = word.strip_prefix("program:") {
            return Some(Balance::Program(file.into()));
        }
        let mut plain = Balance::PLAIN.into_iter();
        plain
            .find(|(_, its, ..)| *its == word)
            .map(|(balance, ..)| balance)
    }
}

/// The word of [`Balance::from_word`].
impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.plain()) {
            (Balance::Program(file), _) => write!(f, "program:{}", file.display()),
            (_, plain) => f.write_str(plain.map_or("", |(_, word, ..)| word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_balance_has_one_word() {
        for word in Balance::words().chain(["program:/tmp/steer.o"]) {
            assert_eq!(Balance::from_word(word).unwrap().to_string(), word);
        }
        assert_eq!(Balance::from_word("hash"), None);
    }
}
