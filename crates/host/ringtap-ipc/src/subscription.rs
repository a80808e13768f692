// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader's subscription: the request, and the hub's answer.
//!
//! A hub in this process and one in another process use the same types; the serde form is that of
//! the hub protocol.

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
    /// The reader's name in `ringtap status`; the protocol sends it in `hello`.
    #[serde(skip)]
    pub name: String,
    /// The reader's own filter, in addition to the group's.
    #[serde(default = "Program::everything", with = "wire::filter")]
    pub filter: Program,
    /// Chunks of one lane that the reader may hold; absent: the group's number.
    #[serde(default)]
    pub credit_chunks: Option<u32>,
    /// When the hub wakes the sleeping reader.
    #[serde(default)]
    pub watermark: Watermark,
    /// Asks for private delivery even in a group with shared delivery.
    #[serde(default)]
    pub private: bool,
    /// Start with the first packet that the source captured, not the next one. Only for readers that
    /// attach before the hub runs, so it is not part of the protocol.
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

/// When the hub wakes a sleeping reader: at a number of packets, or after a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Watermark {
    /// Number of waiting packets at which the reader is woken.
    pub packets: u32,
    /// Longest wait of the first packet until the reader is woken.
    #[serde(rename = "time_limit_ms", with = "wire::milliseconds")]
    pub time_limit: Duration,
    /// While packets come fast, the pause of the reader after it has caught up with the writer.
    #[serde(rename = "distance_us", with = "wire::microseconds")]
    pub distance: Duration,
}

impl Watermark {
    /// A watermark with defaults for absent values.
    pub fn or_default(
        packets: Option<u32>,
        time_limit: Option<Duration>,
        distance: Option<Duration>,
    ) -> Self {
        let default = Watermark::default();
        Watermark {
            packets: packets.unwrap_or(default.packets),
            time_limit: time_limit.unwrap_or(default.time_limit),
            distance: distance.unwrap_or(default.distance),
        }
    }
}

impl Default for Watermark {
    fn default() -> Self {
        Watermark {
            packets: 1,
            time_limit: Duration::from_millis(10),
            distance: Duration::from_micros(100),
        }
    }
}

/// A reader's access to every source of a hub, and a doorbell.
pub struct Subscription {
    /// Number of the subscription at the hub.
    pub id: SubscriptionId,
    /// One endpoint for each source.
    pub endpoints: Vec<Endpoint>,
    /// Wakes the sleeping reader; the reader signals it to wake the hub.
    pub doorbell: Arc<dyn Doorbell>,
    /// When the hub wakes the sleeping reader.
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
    /// The source's own signal, if it has one; readable when a lane has new packets.
    pub wake: Option<Arc<OwnedFd>>,
    /// Which packets belong to the reader.
    pub wanted: Wanted,
    /// Descriptors with which another process maps pool and control region; `None` if it cannot.
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
    /// Each of the reader's packets has one of these bits in its slot's mask.
    pub mask: u64,
    /// Each packet of the reader's balanced group has one of these bits in its slot's mask, also
    /// packets for other members; 0 without such a group.
    #[serde(default)]
    pub group: u64,
    /// Where the filter runs.
    #[serde(rename = "not_in_source", with = "wire::place")]
    pub place: Place,
    /// The filters of the reader and its group combined.
    #[serde(with = "wire::filter")]
    pub filter: Program,
    /// Per lane, the first sequence that the source classified with this filter; the reader filters
    /// earlier packets itself.
    pub from: Vec<u64>,
}
