// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a source to its end with one reader and copies its packets.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ringtap_capture::{InterfaceOptions, packet};
use ringtap_pool::source::Source;
use ringtap_pool::{
    distributor::{Distributor, ReaderOptions},
    format::Slot,
    reader::{NextBatch, Reader},
    source::{Counts, Status},
    wake::NoSignal,
};
use ringtap_testkit::Namespace;

/// Longest wait for something that has happened and is only to be seen. A loaded machine needs milliseconds.
const SOON: Duration = Duration::from_secs(30);

/// One packet, copied out of the pool.
#[derive(Debug, Clone)]
pub(crate) struct Captured {
    pub(crate) data: Vec<u8>,
    pub(crate) slot: Slot,
}

impl Captured {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.slot.flags & flag != 0
    }
}

/// A running capture.
pub(crate) struct Capture {
    source: Source,
    distributor: Distributor,
    reader: Reader,
    pub(crate) packets: Vec<Captured>,
}

impl Capture {
    pub(crate) fn start(net: &Namespace, options: &InterfaceOptions) -> Self {
        Self::of(
            net.enter(|| packet::open(options))
                .expect("the source opens"),
        )
    }

    pub(crate) fn of(mut source: Source) -> Self {
        let lanes = std::mem::take(&mut source.lanes);
        let mut distributor = Distributor::new(source.pool.clone(), lanes, Arc::new(NoSignal));
        let (_, reader) = distributor
            .add_reader(&ReaderOptions {
                credit: Some(u32::MAX),
                ..ReaderOptions::default()
            })
            .expect("there is a place");
        Self {
            source,
            distributor,
            reader,
            packets: Vec::new(),
        }
    }

    pub(crate) fn source(&mut self) -> &mut Source {
        &mut self.source
    }

    /// Copies new packets; returns whether anything moved.
    fn read(&mut self) -> bool {
        let mut moved = self.distributor.step().expect("lanes are sound");
        while let NextBatch::Batch(batch) = self.reader.try_next().expect("chunks are readable") {
            moved = true;
            for packet in batch.packets() {
                let packet = packet.expect("slots are readable");
                self.packets.push(Captured {
                    data: packet.data.to_vec(),
                    slot: packet.slot(),
                });
            }
        }
        moved
    }

    /// Reads until this many packets have arrived.
    pub(crate) fn read_until(&mut self, packets: usize) {
        let started = Instant::now();
        while self.packets.len() < packets {
            let found = self.packets.len();
            assert!(started.elapsed() < SOON, "{found} of {packets} packets");
            if !self.read() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Reads until the source ends because its interface was removed; returns its reason.
    pub(crate) fn read_until_it_fails(&mut self) -> String {
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < SOON, "the source does not end");
            self.source.clear_wake();
            if let Status::Removed(error) = self.source.status() {
                while self.read() {}
                return error.to_string();
            }
            if !self.read() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Stops the source and reads the remaining packets; the counters must balance.
    pub(crate) fn finish(mut self) -> (Vec<Captured>, Counts) {
        self.source.stop();
        let counts = self.source.counts();
        while self.read() {}
        let [lane] = counts.lanes.as_slice() else {
            panic!("one lane: {counts:?}");
        };
        assert_eq!(lane.offered, lane.accounted(), "{counts:?}");
        assert_eq!(usize::try_from(lane.delivered), Ok(self.packets.len()));
        (self.packets, counts)
    }
}
