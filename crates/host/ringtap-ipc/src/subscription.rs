// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader's subscription: the request for it, and what the hub gives.
//!
//! The same types serve a hub in this process and one in another process; their serde form is
//! that of the hub protocol.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ringtap_filter::{Place, Program};
use ringtap_pool::memory::Region;
use ringtap_pool::source::Facts;
use ringtap_pool::view::Pool;
use serde::{Deserialize, Serialize};

use crate::doorbell::Doorbell;
use crate::protocol::wire;

/// Number of a subscription at its hub, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubscriptionId(pub u64);

/// A request for a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionRequest {
    /// The group.
    pub group: String,
    /// The reader's name, as `ringtap status` shows it; in the protocol part of `hello`.
    #[serde(skip)]
    pub name: String,
    /// The reader's own filter, which is combined with the group's.
    #[serde(default = "Program::everything", with = "wire::filter")]
    pub filter: Program,
    /// Chunks of one lane that the reader may hold; the group's number if absent.
    #[serde(default)]
    pub credit_chunks: Option<u32>,
    /// When a sleeping reader is woken.
    #[serde(default)]
    pub watermark: Watermark,
    /// Private delivery even where the group shares.
    #[serde(default)]
    pub private: bool,
    /// Begin with the first packet that the source captured, instead of the next one. Only for
    /// readers that attach before the hub runs, hence not part of the protocol.
    #[serde(skip)]
    pub from_the_first: bool,
}

impl SubscriptionRequest {
    /// A request for all packets of a group, with the group's credit.
    pub fn new(group: impl Into<String>, name: impl Into<String>) -> Self {
        SubscriptionRequest {
            group: group.into(),
            name: name.into(),
            filter: Program::everything(),
            credit_chunks: None,
            watermark: Watermark::default(),
            private: false,
            from_the_first: false,
        }
    }
}

/// When a sleeping reader is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Watermark {
    /// When this many packets wait.
    pub packets: u32,
    /// Or when the first packet has waited this long.
    #[serde(rename = "time_limit_ms", with = "wire::milliseconds")]
    pub time_limit: Duration,
}

impl Watermark {
    /// A watermark with the default in place of absent values.
    pub fn or_default(packets: Option<u32>, time_limit: Option<Duration>) -> Self {
        let default = Watermark::default();
        Watermark {
            packets: packets.unwrap_or(default.packets),
            time_limit: time_limit.unwrap_or(default.time_limit),
        }
    }
}

impl Default for Watermark {
    fn default() -> Self {
        Watermark {
            packets: 1,
            time_limit: Duration::from_millis(10),
        }
    }
}

/// A reader's subscription: access to every source of the hub, and a doorbell.
pub struct Subscription {
    /// Its number at the hub.
    pub id: SubscriptionId,
    /// One for each source.
    pub endpoints: Vec<Endpoint>,
    /// Wakes the sleeping reader; the reader signals it to wake the hub.
    pub doorbell: Arc<dyn Doorbell>,
    /// When a sleeping reader is woken.
    pub watermark: Watermark,
}

/// A reader's access to one source.
pub struct Endpoint {
    /// Description of the source, with the reader's policy.
    pub facts: Facts,
    /// The source's pool.
    pub pool: Pool,
    /// The reader's control region.
    pub control: Region,
    /// The source's own signal, if it has one: readable when a lane has news.
    pub wake: Option<Arc<OwnedFd>>,
    /// Which packets belong to the reader.
    pub wanted: Wanted,
    /// Descriptors by which another process maps pool and control region, if it can.
    pub files: Option<EndpointFiles>,
}

/// Descriptors of an endpoint's memory.
pub struct EndpointFiles {
    /// The pool, read-only.
    pub pool: OwnedFd,
    /// The control region.
    pub control: OwnedFd,
}

/// Which packets of a source belong to a reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The slot's mask of each of its packets has one of these bits.
    pub mask: u64,
    /// The slot's mask of each packet of its balanced group has one of these bits, whichever
    /// member gets the packet; 0 without such a group.
    #[serde(default)]
    pub group: u64,
    /// Where the filter runs.
    #[serde(rename = "not_in_source", with = "wire::place")]
    pub place: Place,
    /// The filters of the reader and its group combined.
    #[serde(with = "wire::filter")]
    pub filter: Program,
    /// Per lane, the first sequence that the source classified with this filter; the reader runs
    /// the filter on packets before it.
    pub from: Vec<u64>,
}
