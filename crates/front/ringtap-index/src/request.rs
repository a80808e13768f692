// SPDX-License-Identifier: MIT OR Apache-2.0
//! What to search, and where.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ringtap_packet::CommunityId;

/// The packet of which a filter decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterTarget {
    /// The packet as it was captured.
    #[default]
    Outer,
    /// The IP packet inside all tunnels, or the packet's own if there is no tunnel; other packets never match.
    Innermost,
}

/// What to search, and where.
#[derive(Clone, Debug)]
pub struct SearchRequest {
    /// Files, and folders whose files are searched.
    pub paths: Vec<PathBuf>,
    /// Filter in pcap-filter syntax; empty: every packet.
    pub filter: String,
    /// The packet of which the filter decides.
    pub target: FilterTarget,
    /// Only packets whose innermost packet has this Community ID, of seed 0.
    pub community_id: Option<CommunityId>,
    /// Earliest time of a packet, in nanoseconds since 1970.
    pub from_ns: u64,
    /// Packets of this time and later ones are not wanted.
    pub to_ns: u64,
    /// Device and inode of a file to leave out: the result.
    pub output: Option<(u64, u64)>,
    /// Most bytes of packets that wait for earlier ones; beyond it, packets come out of order.
    pub max_bytes: usize,
    /// Ends the search early once it is set, also between two packets that the search finds.
    pub stop: Arc<AtomicBool>,
}

impl SearchRequest {
    /// All packets of these files and folders that pass a filter.
    #[must_use]
    pub fn new(paths: Vec<PathBuf>, filter: impl Into<String>) -> Self {
        SearchRequest {
            paths,
            filter: filter.into(),
            target: FilterTarget::Outer,
            community_id: None,
            from_ns: 0,
            to_ns: u64::MAX,
            output: None,
            max_bytes: 256 << 20,
            stop: Arc::default(),
        }
    }
}
