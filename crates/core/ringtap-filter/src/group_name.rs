// SPDX-License-Identifier: MIT OR Apache-2.0
//! Name of a group of readers, in rules.
//!
//! Invariants
//! - A name has 1 to [`MAX_GROUP_NAME`] letters, digits, `-` and `_`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Maximum number of characters.
pub const MAX_GROUP_NAME: usize = 31;

/// The name of a group of readers at a hub.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName {
    length: u8,
    text: [u8; MAX_GROUP_NAME],
}

/// A text is no name of a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no name for a group: use 1 to {MAX_GROUP_NAME} letters, digits, - and _")]
pub struct GroupNameError(String);

impl GroupName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let text = self.text.get(..usize::from(self.length));
        text.and_then(|text| std::str::from_utf8(text).ok())
            .unwrap_or_default()
    }
}

impl FromStr for GroupName {
    type Err = GroupNameError;

    fn from_str(name: &str) -> Result<Self, GroupNameError> {
        let is_good = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        let mut text = [0; MAX_GROUP_NAME];
        match text.get_mut(..name.len()) {
            Some(to) if length > 0 && name.bytes().all(is_good) => {
                to.copy_from_slice(name.as_bytes());
            }
            // A long text does not become a long message.
            _ => {
                return Err(GroupNameError(
                    name.chars().take(2 * MAX_GROUP_NAME).collect(),
                ));
            }
        }
        Ok(GroupName { length, text })
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for GroupName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for GroupName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_few_plain_characters() {
        for name in ["a", "ids-4_x", &"n".repeat(MAX_GROUP_NAME)] {
            assert_eq!(name.parse::<GroupName>().unwrap().as_str(), name);
        }
        for name in ["", "a b", "é", "a:b", &"n".repeat(MAX_GROUP_NAME + 1)] {
            let error = name.parse::<GroupName>().unwrap_err().to_string();
            assert!(error.contains("is no name for a group"), "{error}");
        }
        let long = "n".repeat(10_000).parse::<GroupName>().unwrap_err();
        assert!(long.to_string().len() < 200);
    }
}
