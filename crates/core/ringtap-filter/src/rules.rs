// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules: the packets that a source captures, and the readers that get each packet.
//!
//! A rule stands for one group of readers. Its filter selects packets, its balance mode picks one of
//! 256 buckets for each selected packet, and each bucket names its members as bits of the slot's
//! mask. A source does not capture packets that no rule selects.

use std::path::PathBuf;
use std::sync::Arc;

use crate::Program;

/// Maximum number of rules of one source.
pub const MAX_RULES: usize = 64;
/// Buckets of a rule; a power of two.
pub const BUCKETS: usize = 256;

/// How the members of a group share its packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Every packet is in bucket 0.
    #[default]
    Everyone,
    /// By the flow hash: both directions and all fragments of a connection stay together.
    Flow(Headers),
    /// By the hash of the two addresses.
    Address(Headers),
    /// By the outermost VLAN tag; untagged packets count as VLAN 0.
    Vlan,
    /// The next bucket for each packet, on each lane separately.
    RoundRobin,
    /// By the result of the user's eBPF program in this object file.
    Program(PathBuf),
}

/// Which headers of a tunnelled packet the hash covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headers {
    /// The headers of the tunnel.
    #[default]
    Outer,
    /// The headers inside VXLAN, GRE and GTP-U.
    Inner,
}

/// One group of readers, for a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Selects packets.
    pub filter: Program,
    /// Picks the bucket of a selected packet.
    pub balance: Balance,
    /// The mask bits for the packets of each bucket.
    pub members: Arc<[u64; BUCKETS]>,
}

/// The rules of a source, at most [`MAX_RULES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(pub Vec<Rule>);

/// Where a rule's filter runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In the source: only packets that pass the filter have the bits of its members.
    #[default]
    Source,
    /// In the readers, for this reason.
    Reader(String),
}

impl Rule {
    /// A rule that gives every packet to these members.
    #[must_use]
    pub fn everything(members: u64) -> Self {
        Rule {
            filter: Program::everything(),
            balance: Balance::Everyone,
            members: Arc::new([members; BUCKETS]),
        }
    }

    /// Whether every packet goes to all members.
    #[must_use]
    pub fn takes_everything(&self) -> bool {
        self.filter.takes_everything() && self.balance == Balance::Everyone
    }
}
