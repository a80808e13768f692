// SPDX-License-Identifier: MIT OR Apache-2.0
//! The short way to packets, for who was just woken.
//!
//! After a sleep caches are cold: a reader's time to its packet is the number of lines and pages
//! that it touches. Mostly packets came on one lane, into the chunk that is being read, and
//! nothing else happened.
//!
//! Invariants
//! - What a glance saw is what [`Reader::next`] would find; whatever is more than that is left
//!   to it.
#![forbid(unsafe_code)]

use super::{Batch, Found, Reader};

impl Reader {
    /// Takes all packets that wait, if they wait on one lane and nothing else is to be done.
    /// If not, packets may wait all the same: ask [`Reader::next`] then.
    #[inline]
    pub fn glance(&mut self) -> Option<Batch<'_>> {
        let (lane, found) = self.look_at_fronts()?;
        Some(self.batch(lane, found))
    }

    /// The one lane on which packets wait, if nothing was delivered and nothing has to go back.
    #[inline]
    fn look_at_fronts(&self) -> Option<(usize, Found)> {
        if !self.deliveries.is_empty() {
            return None;
        }
        let mut seen = None;
        for (at, lane) in self.lanes.iter().enumerate() {
            let Some(held) = lane.front else {
                continue;
            };
            let state = self.pool.chunk(held.chunk)?.state();
            let news = held.next < state.published;
            if (news && seen.is_some()) || (!news && state.sealed) {
                return None;
            }
            if news {
                seen = Some((at, Found::of(held, state.published)));
            }
        }
        seen
    }
}
