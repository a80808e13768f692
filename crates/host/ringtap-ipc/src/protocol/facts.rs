// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader's place at a source, as it is told in a message.
#![forbid(unsafe_code)]

use ringtap_pool::number::to_u64;
use ringtap_pool::source::Facts;
use serde::{Deserialize, Serialize};

use super::PolicyName;
use crate::subscription::{Endpoint, Wanted};

/// A reader's place at one source; the descriptors come beside the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointFacts {
    /// The device as the hub's user wrote it.
    pub device: String,
    /// The network interface, if it is one.
    pub interface: Option<String>,
    /// `LINKTYPE_*`.
    pub link_type: u16,
    /// Most bytes captured of a packet.
    pub snap_length_bytes: u32,
    /// Where `offered` comes from, in words.
    pub offered_from: String,
    /// What a user should know of the source.
    pub notes: Vec<String>,
    /// What happens past the reader's credit.
    pub policy: PolicyName,
    /// Bytes to map of the pool.
    pub pool_bytes: u64,
    /// Bytes to map of the control region.
    pub control_bytes: u64,
    /// Whether a descriptor comes beside on which the source itself wakes sleepers.
    #[serde(default)]
    pub wakes: bool,
    /// Which packets are the reader's.
    pub wanted: Wanted,
}

impl From<&Endpoint> for EndpointFacts {
    fn from(endpoint: &Endpoint) -> Self {
        let facts = &endpoint.facts;
        EndpointFacts {
            device: facts.device.clone(),
            interface: facts.interface.clone(),
            link_type: facts.link_type,
            snap_length_bytes: facts.snap_length,
            offered_from: facts.offered_from.clone(),
            notes: facts.notes.clone(),
            policy: endpoint.policy.into(),
            pool_bytes: endpoint.pool.geometry().region_bytes(),
            control_bytes: to_u64(endpoint.control.bytes()),
            wakes: endpoint.wake.is_some(),
            wanted: endpoint.wanted.clone(),
        }
    }
}

impl From<&EndpointFacts> for Facts {
    fn from(facts: &EndpointFacts) -> Self {
        Facts {
            device: facts.device.clone(),
            interface: facts.interface.clone(),
            link_type: facts.link_type,
            snap_length: facts.snap_length_bytes,
            policy: facts.policy.into(),
            notes: facts.notes.clone(),
            offered_from: facts.offered_from.clone(),
        }
    }
}
