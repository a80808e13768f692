// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who wants a packet: the rules by which a source sets the mask of each slot.
//!
//! A rule is a group: its filter says which packets it wants, its balance picks a bucket for
//! each of them, and the bucket says which members get it (a bit of the mask each). A packet
//! that no rule wants is counted as unwanted and not captured.
//!
//! Invariants
//! - Until a source is given rules, every packet has every bit.
//! - Once [`Source::classify`](crate::source::Source::classify) has returned, every packet that
//!   is captured from then on is judged by the new rules, and no packet by parts of both.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;

/// Most rules of one source.
pub const MAX_RULES: usize = 64;
/// Shares into which a group's traffic is divided; a power of two.
pub const BUCKETS: usize = 256;

/// How a group's packets are divided between its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Not at all: bucket 0 has every packet.
    #[default]
    Everyone,
    /// By the flow hash: both directions and all fragments of a connection stay together.
    Flow(Headers),
    /// By the two addresses alone.
    Address(Headers),
    /// By the outermost VLAN tag; untagged packets as VLAN 0.
    Vlan,
    /// One after the other, on each lane.
    RoundRobin,
    /// By what the user's XDP program in this object file returns.
    Program(PathBuf),
}

/// Which headers of a tunnelled packet are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headers {
    /// Those of the tunnel.
    #[default]
    Outer,
    /// Those inside VXLAN, GRE and GTP-U.
    Inner,
}

/// One group as a source sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Classic BPF, one `struct sock_filter` an entry (code, jt, jf, k from the lowest byte up in
    /// little-endian order); empty takes everything. A program that was checked.
    pub filter: Arc<[u64]>,
    /// Which bucket a packet falls into.
    pub balance: Balance,
    /// The members that get the packets of each bucket, a bit each.
    pub members: Arc<[u64; BUCKETS]>,
}

/// The groups of a source, at most [`MAX_RULES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(pub Vec<Rule>);

/// Where a rule's filter runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the source: only packets that pass it have the bits of its members.
    Source,
    /// Not in the source, for this reason: its readers must run it themselves.
    Reader(String),
}

impl Rule {
    /// A rule that gives everything to these members.
    pub fn everything(members: u64) -> Self {
        Rule {
            filter: Arc::default(),
            balance: Balance::Everyone,
            members: Arc::new([members; BUCKETS]),
        }
    }

    /// Whether every packet is for all its members.
    #[must_use]
    pub fn takes_everything(&self) -> bool {
        self.filter.is_empty() && self.balance == Balance::Everyone
    }
}
