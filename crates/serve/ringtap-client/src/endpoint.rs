// SPDX-License-Identifier: MIT OR Apache-2.0
//! A receiver's part of one source.

use std::sync::Arc;

use ringtap_ipc::subscription::Wanted;
use ringtap_pool::reader::{self, Reader, RecvError};
use ringtap_pool::source::Facts;

use crate::classified::Batch;

pub(crate) struct OpenEndpoint {
    pub(crate) facts: Facts,
    pub(crate) reader: Reader,
    pub(crate) wanted: Arc<Wanted>,
    pub(crate) lanes_before: u32,
    /// See [`Receiver::take_horizon_ns`](crate::Receiver::take_horizon_ns).
    pub(crate) horizon_ns: Option<u64>,
    pub(crate) ended: bool,
    /// Number of memory that had left before this reader could map it.
    pub(crate) memory_left: Option<u32>,
}

impl OpenEndpoint {
    #[inline]
    pub(crate) fn batch(&self, inner: reader::ChunkBatch) -> Batch {
        Batch::new(inner, &self.wanted, self.lanes_before)
    }

    /// Looks once more for packets, to find all up to the source's horizon.
    #[cold]
    pub(crate) fn look_up_to_horizon(&mut self) -> Result<Option<Batch>, RecvError> {
        let horizon_ns = self.reader.horizon_ns();
        match self.reader.try_next()? {
            reader::NextBatch::Batch(inner) => return Ok(Some(self.batch(inner))),
            reader::NextBatch::Empty => self.horizon_ns = Some(horizon_ns),
            reader::NextBatch::Ended => self.ended = true,
        }
        Ok(None)
    }
}
