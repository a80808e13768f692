// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captured bytes as an Arrow column that borrows them from the pool.
//!
//! Invariants
//! - A buffer covers only published packets of one batch and the up to 7 bytes between two of them, which nobody
//!   writes as long as the batch is kept.

use std::panic::AssertUnwindSafe;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::BinaryViewArray;
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::ArrowError;
use ringtap_pool::number::to_u32;

use crate::TakenPackets;

/// Bytes that a view holds itself.
const INLINE: usize = 12;
/// Payloads are aligned to this, so fewer bytes lie between two of them.
const ALIGNMENT: usize = 8;

/// Builds a column of captured bytes.
#[derive(Default)]
pub(crate) struct DataColumn {
    views: Vec<u128>,
    buffers: Vec<Buffer>,
}

/// Consecutive bytes of a chunk, and the first view that refers to them.
struct BufferRun {
    start: usize,
    end: usize,
    first_view: usize,
}

impl DataColumn {
    /// Adds the packets of a batch.
    pub(crate) fn extend(&mut self, batch: &Arc<TakenPackets>) {
        let mut run: Option<BufferRun> = None;
        for (packet, is_ours) in batch.all() {
            let start = packet.data.as_ptr().expose_provenance();
            let end = start + packet.data.len();
            // Payloads are packed from the end of the chunk; a cell of AF_XDP lies anywhere.
            let continues = |run: &BufferRun| {
                let gap = run.start.checked_sub(end).or(start.checked_sub(run.end));
                gap.is_some_and(|gap| gap < ALIGNMENT)
            };
            match run.as_mut().filter(|run| continues(run)) {
                Some(run) => {
                    run.start = run.start.min(start);
                    run.end = run.end.max(end);
                }
                None => {
                    let next = BufferRun {
                        start,
                        end,
                        first_view: self.views.len(),
                    };
                    if let Some(run) = run.replace(next) {
                        self.close(&run, batch);
                    }
                }
            }
            if is_ours {
                self.views.push(view(packet.data, start));
            }
        }
        if let Some(run) = run {
            self.close(&run, batch);
        }
    }

    /// Makes the buffer of a run, and turns the addresses in its views into offsets.
    fn close(&mut self, run: &BufferRun, batch: &Arc<TakenPackets>) {
        let own = AssertUnwindSafe(Arc::clone(batch));
        let Some(pointer) = NonNull::new(std::ptr::with_exposed_provenance_mut(run.start)) else {
            return;
        };
        let number = to_u32(self.buffers.len());
        // SAFETY: the bytes between two neighbouring packets of one batch lie in its chunk, which is mapped and not
        // written as long as the batch, which the buffer owns, is kept.
        let buffer =
            unsafe { Buffer::from_custom_allocation(pointer, run.end - run.start, Arc::new(own)) };
        self.buffers.push(buffer);
        for view in &mut self.views[run.first_view..] {
            place(view, number, run.start);
        }
    }

    pub(crate) fn finish(self) -> Result<BinaryViewArray, ArrowError> {
        BinaryViewArray::try_new(ScalarBuffer::from(self.views), self.buffers, None)
    }
}

/// A view of captured bytes: length, and the bytes themselves or their first four and their address.
fn view(data: &[u8], address: usize) -> u128 {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&to_u32(data.len()).to_le_bytes());
    if data.len() <= INLINE {
        bytes[4..4 + data.len()].copy_from_slice(data);
    } else {
        bytes[4..8].copy_from_slice(&data[..4]);
        bytes[8..].copy_from_slice(&address.to_le_bytes());
    }
    u128::from_le_bytes(bytes)
}

/// Replaces the address in a view by the number of its buffer and the offset there.
fn place(view: &mut u128, buffer: u32, start: usize) {
    let mut bytes = view.to_le_bytes();
    let [a, b, c, d, .., e, f, g, h, i, j, k, l] = bytes;
    if u32::from_le_bytes([a, b, c, d]) as usize <= INLINE {
        return;
    }
    let address = usize::from_le_bytes([e, f, g, h, i, j, k, l]);
    bytes[8..12].copy_from_slice(&buffer.to_le_bytes());
    bytes[12..].copy_from_slice(&to_u32(address - start).to_le_bytes());
    *view = u128::from_le_bytes(bytes);
}
