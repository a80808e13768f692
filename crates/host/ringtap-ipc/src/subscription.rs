// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reader gets when it attaches: its place at each source, and a doorbell.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ringtap_filter::{Place, Program};
use ringtap_pool::distributor::Policy;
use ringtap_pool::memory::Region;
use ringtap_pool::source::Facts;
use ringtap_pool::view::Pool;
use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::protocol::wire;

/// A reader's place at one source.
#[derive(Clone)]
pub struct Endpoint {
    /// What the source is.
    pub facts: Facts,
    /// Its pool.
    pub pool: Pool,
    /// The reader's control region.
    pub control: Region,
    /// Where the source itself wakes sleepers, if readers may sleep there.
    pub wake: Option<Arc<OwnedFd>>,
    /// What happens when the reader is past its credit.
    pub policy: Policy,
    /// How its packets are told from those of others.
    pub wanted: Wanted,
}

/// How a reader recognizes its packets in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Bits of a slot's mask; the reader's packets have at least one of them.
    pub mask: u64,
    /// Where the filter runs.
    #[serde(rename = "not_in_source", default, with = "wire::place")]
    pub place: Place,
    /// The reader's filter and its group's filter as one: for packets that the source did not
    /// classify by them.
    #[serde(with = "wire::filter")]
    pub filter: Program,
    /// Per lane, the first sequence that the source classified by this filter; the reader runs
    /// the filter on the packets before it.
    pub from: Vec<u64>,
}

/// A reader's subscription at a hub.
#[derive(Clone)]
pub struct Subscription {
    /// One for each source.
    pub endpoints: Vec<Endpoint>,
    /// Wakes the reader when it sleeps on it, and the hub when it signals it.
    pub doorbell: Event,
    /// When the reader wants packets.
    pub watermark: Watermark,
}

/// When a reader wants packets, and a sleeping one is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// So many packets wait.
    pub packets: u32,
    /// Or the first one has waited so long.
    pub time_limit: Duration,
}

impl Watermark {
    /// What was asked for, and the default for the rest.
    pub fn asked(packets: Option<u32>, time_limit: Option<Duration>) -> Self {
        let usual = Watermark::default();
        Watermark {
            packets: packets.unwrap_or(usual.packets),
            time_limit: time_limit.unwrap_or(usual.time_limit),
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
