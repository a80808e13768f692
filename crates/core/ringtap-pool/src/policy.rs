// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policy for packets of a reader past its credit.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Treatment of packets for a reader past its credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// The reader loses the newest packets; other readers lose nothing.
    #[default]
    DropNewest,
    /// Above half its credit the reader gets one chunk in `one_in`; past it, none.
    Sample {
        /// One chunk of this many is delivered; at least 1.
        one_in: u32,
    },
    /// Above half its credit the reader gets the first `snap_bytes` bytes of each packet; past it, none.
    Cut {
        /// Number of bytes left of a packet.
        snap_bytes: u32,
    },
    /// The source waits. Only for sources that can wait: files and simulated ones.
    Block,
}

impl Policy {
    /// The policy of this word; `None` if there is none.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
        match word.split_once(':') {
            None if word == "drop" => Some(Policy::DropNewest),
            None if word == "block" => Some(Policy::Block),
            Some(("sample", text)) => number(text).map(|one_in| Policy::Sample { one_in }),
            Some(("cut", text)) => number(text).map(|snap_bytes| Policy::Cut { snap_bytes }),
            _ => None,
        }
    }
}

/// The word of [`Policy::from_word`].
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::DropNewest => f.write_str("drop"),
            Policy::Sample { one_in } => write!(f, "sample:{one_in}"),
            Policy::Cut { snap_bytes } => write!(f, "cut:{snap_bytes}"),
            Policy::Block => f.write_str("block"),
        }
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Policy::from_word(&word).ok_or_else(|| D::Error::custom("no policy"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_one_word() {
        for word in ["drop", "sample:8", "cut:96", "block"] {
            assert_eq!(Policy::from_word(word).unwrap().to_string(), word);
        }
        for bad in ["sample:0", "sample", "cut:x", "dropnewest", ""] {
            assert_eq!(Policy::from_word(bad), None, "{bad}");
        }
    }
}
