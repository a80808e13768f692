// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a group divides and delivers packets: in the hub, in its answers, and in words.

use std::fmt;

use ringtap_filter::Balance;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How packets reach the readers of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Readers read in place, and can see the whole pool of the source.
    #[default]
    Shared,
    /// Packets that pass a reader's filter are copied into a pool of the reader's own.
    Private,
}

/// How a group's traffic is divided between its readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Division {
    /// Packets, by a balance.
    Packets(Balance),
    /// Chunks: each lane has one owner among the readers (WireCAP's basic mode).
    Lanes,
}

impl Delivery {
    /// The delivery of this word; `None` if there is none.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        let mut all = [Delivery::Shared, Delivery::Private].into_iter();
        all.find(|delivery| delivery.word() == word)
    }

    /// The delivery's word in configurations and reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Delivery::Shared => "shared",
            Delivery::Private => "private",
        }
    }
}

impl Division {
    /// Every reader gets every packet.
    pub const BROADCAST: Division = Division::Packets(Balance::Everyone);

    /// The balance of the group's rule in a source. Where chunks are divided, the rule is that of a broadcast group:
    /// the hub divides them later.
    #[must_use]
    pub fn balance(&self) -> &Balance {
        match self {
            Division::Packets(balance) => balance,
            Division::Lanes => &Balance::Everyone,
        }
    }

    /// The division of this word; `None` if there is none.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        if word == "lanes" {
            return Some(Division::Lanes);
        }
        Balance::from_word(word).map(Division::Packets)
    }
}

impl Default for Division {
    fn default() -> Self {
        Division::BROADCAST
    }
}

impl From<Balance> for Division {
    fn from(balance: Balance) -> Self {
        Division::Packets(balance)
    }
}

/// The word of [`Division::from_word`].
impl fmt::Display for Division {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Division::Packets(balance) => balance.fmt(f),
            Division::Lanes => f.write_str("lanes"),
        }
    }
}

impl Serialize for Division {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Division {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Division::from_word(&word).ok_or_else(|| D::Error::custom("no balance"))
    }
}

#[cfg(test)]
mod tests {
    use ringtap_filter::Headers;

    use super::*;

    #[test]
    fn divisions_and_deliveries_are_words_in_json() {
        let lanes = serde_json::to_string(&Division::Lanes).unwrap();
        assert_eq!(lanes, "\"lanes\"");
        let flow: Division = serde_json::from_str("\"inner-flow\"").unwrap();
        assert_eq!(flow, Balance::Flow(Headers::Inner).into());
        assert!(serde_json::from_str::<Division>("\"hash\"").is_err());
        for delivery in [Delivery::Shared, Delivery::Private] {
            let json = serde_json::to_string(&delivery).unwrap();
            assert_eq!(json, format!("\"{}\"", delivery.word()));
            assert_eq!(Delivery::from_word(delivery.word()), Some(delivery));
        }
    }
}
