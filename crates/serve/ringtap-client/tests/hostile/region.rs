// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader reads a pool and control region with random content, or reports an error.

use std::sync::Arc;

use ringtap_pool::distributor::Policy;
use ringtap_pool::format::FIRST_EPOCH;
use ringtap_pool::reader::{NextBatch, Reader};
use ringtap_pool::view::Pool;
use ringtap_pool::wake::NoSignal;
use ringtap_testkit::Script;

use crate::regions::Regions;

/// Takes all waiting packets; returns whether the reader still works.
fn read(reader: &mut Reader, script: &mut Script<'_>) -> bool {
    match script.byte() % 4 {
        0 => reader.waiting().is_ok(),
        1 => reader.peek().is_ok(),
        2 => {
            reader.sleeper().arm();
            reader.sleeper().disarm();
            true
        }
        _ => match reader.try_next() {
            Ok(NextBatch::Batch(batch)) => {
                let sum = |data: &[u8]| data.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                let read: u64 = batch.packets().flatten().map(|one| sum(one.data)).sum();
                std::hint::black_box((read, batch.gap, batch.len(), batch.lane));
                true
            }
            Ok(_) => true,
            Err(_) => false,
        },
    }
}

/// Runs the script in these bytes.
pub(crate) fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let regions = Regions::new();
    for _ in 0..script.byte() % 8 {
        regions.spoil(&mut script);
    }
    let Ok(pool) = Pool::open(regions.pool.clone(), FIRST_EPOCH) else {
        return;
    };
    let policy = Policy::Cut { snap_bytes: 60 };
    let Ok(mut reader) = Reader::open(pool, &regions.control, policy, Arc::new(NoSignal)) else {
        return;
    };
    while !script.is_empty() {
        if script.byte().is_multiple_of(2) {
            regions.spoil(&mut script);
        }
        if !read(&mut reader, &mut script) {
            return;
        }
    }
}
