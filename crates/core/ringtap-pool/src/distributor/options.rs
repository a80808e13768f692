// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a reader.

use crate::policy::Policy;

/// Options of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderOptions {
    /// Maximum number of chunks of one lane that the reader holds; by default as many as the lane's
    /// division between readers permits, or all if the source can wait.
    pub credit: Option<u32>,
    /// Treatment of packets past the credit.
    pub policy: Policy,
    /// Mask bits of the reader: it wants packets that have one of them.
    pub mask: u64,
    /// Mask bits that every packet of the reader's balanced group has, for any member; 0 without
    /// such a group.
    pub group: u64,
    /// Number of its chunk share: of the readers with one number, one gets each chunk. A reader
    /// without a share gets every chunk.
    pub chunk_share: Option<u32>,
    /// The user whose readers have common limits; `None`: limits are this reader's own.
    pub user: Option<u32>,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        ReaderOptions {
            credit: None,
            policy: Policy::default(),
            mask: u64::MAX,
            group: 0,
            chunk_share: None,
            user: None,
        }
    }
}
