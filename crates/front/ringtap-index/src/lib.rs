// SPDX-License-Identifier: MIT OR Apache-2.0
//! Index of capture files, and the search that reads only the blocks that can match.
//!
//! [`index_file`] writes an index beside a pcap or pcapng file. A [`Search`] over files and folders yields packets
//! in the order of their times. `docs/internals/index-format.md` describes the file.
//!
//! Invariants
//! - A result equals that of a scan of all files with the filter. An index only saves reading.
//! - An index that is missing, torn, old or of another file means "scan this file".
#![forbid(unsafe_code)]

mod ahead;
mod beside;
mod blocks;
mod data;
mod extract;
mod follow;
mod indexing;
mod layout;
mod members;
mod narrow;
mod note;
mod opened;
mod posting;
mod query;
mod request;
mod search;
mod segment;
mod stored;
mod term;
mod walk;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#[allow(
    clippy::cast_possible_truncation,
    reason = "random bytes are cut on purpose"
)]
mod tests;

pub use beside::{index_path, remove_index};
pub use follow::{FollowOutcome, IndexFollower};
pub use indexing::{IndexError, IndexOutcome, IndexTotals, index_file};
pub use note::SearchNote;
pub use request::{FilterTarget, SearchRequest};
pub use search::{FoundRecord, Search, SearchTotals};
pub use walk::{CapturePath, capture_files};
