// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the source tests in private networks: reading all packets, and frames.

use std::sync::Arc;
use std::time::Duration;

use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::format::Slot;
use ringtap_pool::reader::NextBatch;
use ringtap_pool::source::{Counts, Source};
use ringtap_pool::wake::NoSignal;

/// Longest wait for something that has happened and is only to be seen. A loaded machine needs milliseconds.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// One captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) lane: u32,
    pub(crate) slot: Slot,
    pub(crate) data: Vec<u8>,
}

/// Stops the source; returns all captured packets, lane by lane, and the final counters.
pub(crate) fn finish(source: impl Into<Source>) -> (Vec<Captured>, Counts) {
    let mut source = source.into();
    source.stop();
    let mut distributor = Distributor::new(
        source.pool.clone(),
        std::mem::take(&mut source.lanes),
        Arc::new(NoSignal),
    );
    let all = ReaderOptions {
        credit: Some(u32::MAX),
        ..ReaderOptions::default()
    };
    let (_, mut reader) = distributor.add_reader(&all).unwrap();
    let mut captured = Vec::new();
    loop {
        let moved = distributor.step().unwrap();
        let before = captured.len();
        while let NextBatch::Batch(batch) = reader.try_next().unwrap() {
            for packet in batch.packets() {
                let packet = packet.unwrap();
                captured.push(Captured {
                    lane: batch.lane.0,
                    slot: packet.slot(),
                    data: packet.data.to_vec(),
                });
            }
        }
        if !moved && captured.len() == before {
            return (captured, source.counts());
        }
    }
}

/// Bytes of all captured packets of the tests' own type, in time order.
pub(crate) fn own(captured: &[Captured]) -> Vec<Vec<u8>> {
    let ours = captured.iter().filter(|packet| is_own(&packet.data));
    let mut ours: Vec<_> = ours.collect();
    ours.sort_by_key(|packet| packet.slot.time_ns);
    ours.iter().map(|packet| packet.data.clone()).collect()
}

fn is_own(data: &[u8]) -> bool {
    data.windows(2)
        .skip(12)
        .take(9)
        .any(|bytes| bytes == [0x88, 0xb5])
}

/// A frame of `length` bytes, of the experimental type, whose bytes follow from `number`.
pub(crate) fn frame(number: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, number];
    bytes.extend((15..length).map(|at| (at * 7).to_le_bytes()[0] ^ number));
    bytes.truncate(length);
    bytes
}
