// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wire forms of types that core crates define.
#![forbid(unsafe_code)]

/// A filter as one number per instruction; no numbers stand for every packet.
pub(crate) mod filter {
    use ringtap_filter::Program;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use crate::protocol::MOST_INSTRUCTIONS;

    pub(crate) fn serialize<S: Serializer>(filter: &Program, to: S) -> Result<S::Ok, S::Error> {
        filter.to_entries().serialize(to)
    }

    /// Checks the filter, so that no other place has to.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Program, D::Error> {
        let entries = Vec::deserialize(from)?;
        if entries.len() > MOST_INSTRUCTIONS {
            return Err(D::Error::custom(format!(
                "a filter of {} instructions: {MOST_INSTRUCTIONS} is the most",
                entries.len()
            )));
        }
        Program::from_entries(&entries).map_err(D::Error::custom)
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
