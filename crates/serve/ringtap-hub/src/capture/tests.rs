// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a source, and pauses of its lane.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Acquire;

use ringtap_pool::reader::{NextBatch, Reader};
use ringtap_pool::wake::NoSignal;

use super::*;
use crate::fed::{FedSource, Feed};

/// Packets that fill a chunk of 4 KiB: 32 bytes of slot and 64 of payload for each.
const PACKETS_PER_CHUNK: u64 = 42;

fn capture(source: FedSource, congestion: Option<Congestion>) -> SourceCapture {
    let options = HubOptions {
        congestion,
        ..HubOptions::default()
    };
    SourceCapture::new(source.into(), &options, Arc::new(NoSignal))
}

/// A capture with ten chunks that pauses below 30 % and resumes at 60 %, and a reader of the policy
/// "block" with this credit.
struct Congested {
    capture: SourceCapture,
    feed: Feed,
    reader: Reader,
    pauses: Arc<Mutex<Vec<Pause>>>,
}

impl Congested {
    fn new(credit: u32) -> Self {
        let (source, feed) = FedSource::new(11);
        let pauses = Arc::clone(&source.pauses);
        let congestion = Congestion {
            low_percent: 30,
            high_percent: 60,
        };
        let mut capture = capture(source, Some(congestion));
        let options = ReaderOptions {
            credit: Some(credit),
            policy: Policy::Block,
            ..ReaderOptions::default()
        };
        let (_, reader) = capture.distributor.add_reader(&options).expect("a place");
        Congested {
            capture,
            feed,
            reader,
            pauses,
        }
    }

    /// Captures this many chunks, and steps after each.
    fn fill(&mut self, chunks: u32) {
        for _ in 0..chunks {
            self.feed.write(PACKETS_PER_CHUNK, 7);
            self.capture.step();
        }
    }

    fn pauses(&self) -> Vec<Pause> {
        self.pauses.lock().expect("no panic").clone()
    }
}

#[test]
fn a_source_that_ended_is_stopped_and_not_looked_at_again() {
    let (mut source, _feed) = FedSource::new(5);
    source.has_ended = true;
    let clears = Arc::clone(&source.clears);
    let mut capture = capture(source, None);
    for _ in 0..2 {
        capture.look();
        assert_eq!(capture.stage, Stage::Draining);
    }
    assert_eq!(clears.load(Acquire), 1);
}

#[test]
fn a_lane_pauses_when_few_chunks_are_free_and_resumes_when_they_are_back() {
    let mut congested = Congested::new(u32::MAX);
    congested.fill(7);
    assert_eq!(congested.pauses(), [], "30 % are free");
    congested.fill(1);
    assert_eq!(congested.pauses(), [Pause::Paused]);
    while let NextBatch::Batch(batch) = congested.reader.try_next().expect("a sound pool") {
        drop(batch);
    }
    congested.capture.step();
    assert_eq!(congested.pauses(), [Pause::Paused, Pause::Capturing]);
}

#[test]
fn a_lane_pauses_while_its_readers_have_no_credit() {
    let mut congested = Congested::new(2);
    congested.fill(1);
    assert_eq!(congested.pauses(), []);
    congested.fill(1);
    assert_eq!(congested.pauses(), [Pause::Paused], "80 % are free");
}
