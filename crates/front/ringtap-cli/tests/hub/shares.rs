// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guaranteed shares of the pool: readers beside stopped readers that hold all they can.

use std::time::{Duration, Instant};

use ringtap_client::{Next, Receiver, Tally};
use ringtap_ipc::protocol::ReaderStatus;
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_testkit::{Running, require_root};
use rustix::process::Signal;

use crate::support::{Account, BINARY, LIMIT, RunningHub, sent};

/// A chunk of 64 KiB has room for 42 packets of this size.
const PACKET_BYTES: u64 = 1500;
const PACKETS_OF_A_CHUNK: u64 = 40;
/// More bursts than fill any pool of this test.
const MAX_BURSTS: u32 = 2000;

/// A reader of this process, which reads only when the test says so.
struct Paused {
    receiver: Receiver,
    tally: Tally,
}

impl Paused {
    fn attach(hub: &RunningHub) -> Self {
        let receiver = hub.receiver("all");
        let tally = Tally::new(receiver.lanes());
        Paused { receiver, tally }
    }

    /// Reads until it has this many packets; fails if a packet is missing.
    fn read_to(&mut self, packets: u64) {
        let deadline = Instant::now() + LIMIT;
        let pause = Duration::from_millis(1);
        loop {
            while let Next::Batch(batch) = self.receiver.next(Some(pause)).expect("the hub runs") {
                let counted = self.tally.count_batch(&batch, |_| true);
                counted.expect("the pool is sound");
            }
            let counters = self.counters();
            let Dropped {
                nic,
                kernel,
                pool_full,
                overrun,
                ..
            } = counters.dropped;
            assert_eq!((pool_full, overrun), (0, 0), "{counters:?}");
            if counters.delivered + nic + kernel >= packets {
                return;
            }
            assert!(Instant::now() < deadline, "{packets} packets: {counters:?}");
        }
    }

    fn counters(&self) -> Counters {
        let snapshot = self.receiver.snapshot().expect("the hub answers");
        self.tally.total(&snapshot)
    }
}

/// Sends large packets at a rate that fills the pool within a fifth of a second; returns their
/// number.
fn send(hub: &RunningHub, packets: u64) -> u64 {
    let (size, count) = (PACKET_BYTES.to_string(), packets.to_string());
    let mut command = hub.net.command(BINARY);
    command.args(["send", "-i", "tx0", "--json", "--rate", "100000pps"]);
    command.args(["--size", &size, "-c", &count]);
    sent(&Running::start(command).wait(LIMIT).success())
}

/// Of `readers` readers, `stopped` ones stop one after the other and keep all chunks that the hub
/// lets them have. All others fall behind by their guarantee again and again.
fn beside_stopped_readers(readers: u32, stopped: u32) {
    require_root!();
    let file = tempfile::NamedTempFile::new().expect("a file can be made");
    let text = format!("[limits]\nguaranteed_readers = {readers}\n[[group]]\nname = \"all\"\n");
    std::fs::write(file.path(), text).expect("it can be written");
    let config = file.path().display().to_string();
    let device = "tap:rx0?exclusive&direction=in&pool=64MiB";
    let test = format!("hub-share{readers}-{stopped}");
    let hub = RunningHub::with(&test, device, &["-c", &config]);
    let processes: Vec<_> = (0..stopped).map(|_| hub.count("all", &[])).collect();
    let mut others: Vec<_> = (stopped..readers).map(|_| Paused::attach(&hub)).collect();
    let status = hub.status();
    let guarantees = status.readers.iter().map(|reader| reader.guaranteed_chunks);
    let guarantee = u64::from(guarantees.min().expect("there are readers"));
    assert!(guarantee > 2, "{status:#?}");
    let burst_packets = (guarantee - 1) * PACKETS_OF_A_CHUNK;
    let mut all = 0;
    let mut burst = |others: &mut [Paused]| {
        all += send(&hub, burst_packets);
        others.iter_mut().for_each(|other| other.read_to(all));
    };
    for process in &processes {
        process.signal(Signal::STOP);
        let is_this = |reader: &&ReaderStatus| reader.pid.cast_unsigned() == process.pid();
        let holds_all = |_: &u32| {
            burst(&mut others);
            let readers = hub.status().readers;
            readers
                .iter()
                .find(is_this)
                .is_some_and(|one| one.overrun > 0)
        };
        let found = (0..MAX_BURSTS).find(holds_all);
        assert!(
            found.is_some(),
            "a stopped reader loses packets: {:#?}",
            hub.status()
        );
    }
    (0..3).for_each(|_| burst(&mut others));
    let status = hub.status();
    let lanes = status.sources.iter().flat_map(|source| &source.lanes);
    let pool_full: u64 = lanes.map(|lane| lane.counts.pool_full).sum();
    assert_eq!(pool_full, 0, "a chunk is always free: {status:#?}");
    drop(others);
    for process in processes {
        process.signal(Signal::CONT);
        assert!(Account::of(process).0.number("dropped.overrun") > 0);
    }
    hub.finish();
}

#[test]
fn a_reader_alone_may_fall_behind_by_its_guarantee() {
    beside_stopped_readers(1 + 1, 0);
}

#[test]
fn a_reader_beside_three_stopped_readers_may_fall_behind_by_its_guarantee() {
    beside_stopped_readers(4, 3);
}

#[test]
fn fifteen_readers_beside_a_stopped_reader_may_fall_behind_by_their_guarantee() {
    beside_stopped_readers(16, 1);
}

#[test]
fn four_readers_beside_twelve_stopped_readers_may_fall_behind_by_their_guarantee() {
    beside_stopped_readers(16, 12);
}
