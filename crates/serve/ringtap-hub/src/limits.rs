// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits that protect the hub and its readers from each other: the table `[limits]` of `hub.toml`.
//!
//! Invariants
//! - Each refusal by a limit names the limit's key.

use std::num::NonZeroU32;

use ringtap_device::Size;
use serde::Deserialize;

/// Limits of a hub. Root and the hub's own user are exempt from limits per user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Most connections at one time.
    pub connections: NonZeroU32,
    /// Most connections at one time of one user.
    pub connections_per_user: NonZeroU32,
    /// Most connections at one time of all users together who may attach to no group.
    pub connections_of_strangers: NonZeroU32,
    /// Readers with a full guaranteed share of each source's pool; 1: one reader may hold nearly
    /// all of it.
    pub guaranteed_readers: NonZeroU32,
    /// Seconds from the start of a connection until the hub must have its first message.
    pub hello_seconds: NonZeroU32,
    /// Most requests per second of one user; the hub reads further ones later. Attaching and changing
    /// a filter, for which sources load programs, count as 20 requests.
    pub requests_per_second: NonZeroU32,
    /// Most percent of a processor's time for waking one reader of another user. Beyond it, the hub wakes
    /// the reader later.
    pub wake_percent_per_reader: NonZeroU32,
    /// Most lines per second that the hub logs; the hub counts the others.
    pub log_lines_per_second: NonZeroU32,
    /// Most lines per second that the hub logs about one user.
    pub log_lines_per_user_and_second: NonZeroU32,
    /// Most instructions that one filter may run for a packet in a source or in a private reader's
    /// copying thread. Beyond it the reader runs the filter; with private delivery the hub refuses it.
    pub filter_steps: NonZeroU32,
    /// Most instructions of one filter over all its paths. Beyond it, or if the kernel's verifier follows
    /// more than `filter_verifier_steps` instructions, the reader runs the filter.
    pub filter_path_steps: NonZeroU32,
    /// Most instructions that the kernel's verifier may follow for one filter.
    pub filter_verifier_steps: NonZeroU32,
    /// Most instructions that all filters of one user may run for a packet in a source.
    pub user_filter_steps: NonZeroU32,
    /// Most instructions that all filters may run for a packet in a source.
    pub source_filter_steps: NonZeroU32,
    /// Most readers of one user with a bit of their own in the packets' masks. Further ones run their
    /// filters themselves and join no balanced group.
    pub mask_bits_per_user: NonZeroU32,
    /// Most subscriptions at one time of one user.
    pub subscriptions_per_user: NonZeroU32,
    /// Most bytes of one user's private pools.
    pub private_memory_per_user: Size,
    /// Most bytes of the private pools of all users together.
    pub private_memory: Size,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: count(512),
            connections_per_user: count(64),
            connections_of_strangers: count(32),
            guaranteed_readers: count(8),
            hello_seconds: count(5),
            requests_per_second: count(200),
            wake_percent_per_reader: count(5),
            log_lines_per_second: count(50),
            log_lines_per_user_and_second: count(10),
            filter_steps: count(512),
            filter_path_steps: count(20_000),
            filter_verifier_steps: count(100_000),
            user_filter_steps: count(512),
            source_filter_steps: count(4096),
            mask_bits_per_user: count(48),
            subscriptions_per_user: count(64),
            private_memory_per_user: Size(256 << 20),
            private_memory: Size(1 << 30),
        }
    }
}

/// A number above 0; 0 becomes 1.
const fn count(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}
