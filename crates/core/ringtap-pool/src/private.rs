// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pool of one reader, filled with copies: its writer is its distributor, too.

use std::sync::Arc;

use crate::control;
use crate::distributor::{AddReaderError, Distributor, ReaderOptions};
use crate::format::Geometry;
use crate::ids::{ChunkId, LaneId, ReaderId};
use crate::memory::Region;
use crate::number::to_usize;
use crate::reader::Packet;
use crate::source;
use crate::view::{Pool, PoolError};
use crate::wake::NoSignal;
use crate::writer::{LaneWriter, PacketMeta};

/// Why memory cannot be a private pool.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum PrivatePoolError {
    /// The pool's region is too small.
    Pool(#[from] PoolError),
    /// The control region is too small.
    Reader(#[from] AddReaderError),
}

/// A pool of one reader, which loses packets that find no room.
pub struct PrivatePool {
    /// The lanes' writers.
    pub writers: Vec<LaneWriter>,
    /// Hands chunks to the reader and takes them back.
    pub distributor: Distributor,
    /// The reader, which may hold all chunks.
    pub reader: ReaderId,
}

impl PrivatePool {
    /// Fills `writable`, of which `readable` is a view, for the reader of the control region `control`.
    ///
    /// # Errors
    ///
    /// [`AddReaderError::Control`]: the control region is too small.
    ///
    /// # Safety
    ///
    /// The pool must be mapped writable, and no other code may write into it.
    pub unsafe fn new(
        writable: &Pool,
        readable: Pool,
        control: &Region,
    ) -> Result<Self, AddReaderError> {
        let starts = vec![0; to_usize(writable.geometry().lane_count)];
        // SAFETY: by the caller's promise.
        unsafe { PrivatePool::begin_at(writable, readable, control, &starts, &[]) }
    }

    /// As [`PrivatePool::new`], with the sequence of each lane's first packet, and without these chunks.
    unsafe fn begin_at(
        writable: &Pool,
        readable: Pool,
        control: &Region,
        starts: &[u64],
        without: &[ChunkId],
    ) -> Result<Self, AddReaderError> {
        let geometry = *writable.geometry();
        let (mut writers, mut ends) = (Vec::new(), Vec::new());
        for (lane, start) in (0..).map(LaneId).zip(starts) {
            let mut chunks = source::share(&geometry, lane);
            chunks.retain(|chunk| without.binary_search(chunk).is_err());
            // Writer and distributor are one thread, which needs no signal from itself.
            // SAFETY: writable by the caller's promise, and each lane has chunks of its own.
            let (mut writer, end) =
                unsafe { source::lane(writable, lane, chunks, Arc::new(NoSignal)) };
            writer.begin_at(*start);
            writers.push(writer);
            ends.push(end);
        }
        let mut distributor = Distributor::new(readable, ends, Arc::new(NoSignal));
        distributor.begin_at(starts);
        let options = ReaderOptions {
            credit: Some(u32::MAX),
            ..ReaderOptions::default()
        };
        let reader = distributor.add_reader_at(&options, control, starts)?;
        Ok(PrivatePool {
            writers,
            distributor,
            reader,
        })
    }

    /// Makes a pool of one lane in memory that another one may have used before, with this epoch: its first
    /// packet has the sequence `begins_at`, and it leaves the chunks `without`, in
    /// order, as they are.
    ///
    /// # Errors
    ///
    /// [`PrivatePoolError`]: the memory is too small.
    ///
    /// # Safety
    ///
    /// Both regions must be mapped writable, and no other code of this machine may use them.
    pub unsafe fn in_used_memory(
        region: Region,
        geometry: Geometry,
        epoch: u64,
        control: &Region,
        (begins_at, without): (u64, &[ChunkId]),
    ) -> Result<Self, PrivatePoolError> {
        let pool = Pool::new(region, geometry)?.with_epoch(epoch);
        // SAFETY: by the caller's promise.
        unsafe { pool.write_header() };
        control::clear(control);
        // SAFETY: by the caller's promise.
        let made =
            unsafe { PrivatePool::begin_at(&pool, pool.clone(), control, &[begins_at], without) };
        Ok(made?)
    }

    /// Copies a packet, to be published by its lane's writer; `false` if there is no room, which the
    /// reader learns as a gap.
    pub fn put(&mut self, lane: LaneId, packet: &Packet<'_>) -> bool {
        let meta = PacketMeta::from_slot(&packet.slot());
        let Some(writer) = self.writers.get_mut(lane.index()) else {
            return false;
        };
        if writer.stage(&meta, [packet.data]).is_ok() {
            return true;
        }
        // Chunks that the reader returned meanwhile can be used at once.
        let _moved = self.distributor.step();
        let is_staged = writer.stage(&meta, [packet.data]).is_ok();
        if !is_staged {
            self.distributor.charge(self.reader, lane, 1);
        }
        is_staged
    }

    /// Tells the reader that no packet follows.
    pub fn end(&mut self) {
        self.writers.iter_mut().for_each(LaneWriter::close);
        while self.distributor.step().unwrap_or(false) {}
        self.distributor.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributor::Policy;
    use crate::format::flag;
    use crate::reader::{NextBatch, Reader};

    #[test]
    fn a_copy_has_the_metadata_and_the_bytes_of_the_packet() {
        let captured = PacketMeta {
            time_ns: 1_700_000_000_123_456_789,
            wire_length: 1400,
            flags: flag::OUT | flag::HASHED,
            queue: 5,
            mask: u64::MAX,
            hash: Some(0x1234_5678),
        };
        let geometry = Geometry::contiguous(4096, 3, 1, 1500).unwrap();
        let shared = Pool::on_heap(geometry);
        let chunks = source::share(&geometry, LaneId(0));
        // SAFETY: on the heap, and the only lane.
        let (mut writer, ends) =
            unsafe { source::lane(&shared, LaneId(0), chunks, Arc::new(NoSignal)) };
        let mut distributor = Distributor::new(shared, vec![ends], Arc::new(NoSignal));
        let (_, mut from) = distributor.add_reader(&ReaderOptions::default()).unwrap();
        let narrow = PacketMeta {
            mask: 1,
            ..captured
        };
        writer.write(&narrow, [b"packet"]).unwrap();
        distributor.step().unwrap();

        let memory = Region::on_heap(to_usize(geometry.region_bytes()));
        let control = Region::on_heap(control::control_bytes(&geometry));
        // SAFETY: on the heap, and used nowhere else.
        let private = unsafe {
            PrivatePool::in_used_memory(memory.clone(), geometry, 77, &control, (5, &[ChunkId(2)]))
        };
        let mut private = private.unwrap();
        let NextBatch::Batch(batch) = from.try_next().unwrap() else {
            panic!("no packet");
        };
        for packet in batch.packets() {
            assert!(private.put(LaneId(0), &packet.unwrap()));
        }
        private.end();

        let pool = Pool::open(memory, 77).unwrap();
        let reader = Reader::open(pool, &control, Policy::DropNewest, Arc::new(NoSignal));
        let NextBatch::Batch(batch) = reader.unwrap().try_next().unwrap() else {
            panic!("no copy");
        };
        let copies: Vec<_> = batch.packets().map(Result::unwrap).collect();
        assert_eq!(copies.len(), 1);
        assert_eq!(copies[0].data, b"packet");
        assert_eq!(copies[0].sequence, 5);
        assert_eq!(PacketMeta::from_slot(&copies[0].slot()), captured);
        assert_eq!(copies[0].slot().mask, u64::MAX);
    }
}
