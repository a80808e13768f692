// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wire forms of types from other crates.

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
