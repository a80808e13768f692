// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wire forms of types from other crates.

/// A filter as one number per instruction; an empty list takes every packet.
pub mod filter {
    use ringtap_filter::Program;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use crate::protocol::MOST_INSTRUCTIONS;

    /// Serializes a filter.
    ///
    /// # Errors
    ///
    /// The serializer's.
    pub fn serialize<S: Serializer>(filter: &Program, to: S) -> Result<S::Ok, S::Error> {
        filter.to_entries().serialize(to)
    }

    /// Deserializes and checks a filter, so that other code need not.
    ///
    /// # Errors
    ///
    /// The deserializer's, and the reason why the numbers are not a filter.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Program, D::Error> {
        let entries = Vec::deserialize(from)?;
        if entries.len() > MOST_INSTRUCTIONS {
            return Err(D::Error::custom(format!(
                "a filter of {} instructions: at most {MOST_INSTRUCTIONS} are possible",
                entries.len()
            )));
        }
        let program = Program::from_entries(&entries);
        program.map_err(|error| D::Error::custom(format!("invalid filter: {error}")))
    }
}

/// Where a filter runs, as the reason why it does not run in the source.
pub(crate) mod place {
    use ringtap_filter::Place;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(crate) fn serialize<S: Serializer>(place: &Place, to: S) -> Result<S::Ok, S::Error> {
        match place {
            Place::Source => None,
            Place::Reader(reason) => Some(reason),
        }
        .serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Place, D::Error> {
        let reason = Option::deserialize(from)?;
        Ok(reason.map_or(Place::Source, Place::Reader))
    }
}
