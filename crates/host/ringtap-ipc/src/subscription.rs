// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reader gets when it attaches: its place at each source, and a doorbell.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ringtap_pool::classify::Place;
use ringtap_pool::distributor::Policy;
use ringtap_pool::memory::Region;
use ringtap_pool::source::Facts;
use ringtap_pool::view::Pool;

use crate::event::Event;

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

/// How a reader tells its packets from those of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Bits of a slot's mask of which one is set in its packets.
    pub mask: u64,
    /// Where its filter runs.
    pub place: Place,
    /// Its filter together with its group's, as entries of classic BPF: for packets that the
    /// source did not judge.
    pub filter: Arc<[u64]>,
    /// Per lane, the sequence from which on the source judged packets by this filter; those
    /// before are to be matched by the reader.
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
