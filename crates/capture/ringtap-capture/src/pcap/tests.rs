// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `pcap` source on files that the tests write.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use ringtap_pool::conformance::{self, Harness, PoolSize};
use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::ids::LaneId;
use ringtap_pool::reader::{NextBatch, Packet};
use ringtap_pool::source::{Source, Status};
use ringtap_pool::wake::NoSignal;
use tempfile::TempDir;

use super::*;
use ringtap_filter::{LinkType, Rule, Rules, flow, text};

/// A hand-made pcap file with nanosecond time stamps.
fn pcap_file(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(0xa1b2_3c4d_u32.to_le_bytes());
    bytes.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(262_144_u32.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    for (number, frame) in (1_u32..).zip(frames) {
        let length = u32::try_from(frame.len()).unwrap().to_le_bytes();
        bytes.extend([1_u32.to_le_bytes(), number.to_le_bytes(), length, length].concat());
        bytes.extend(frame);
    }
    bytes
}

fn options(path: &Path) -> PcapOptions {
    PcapOptions::new(path.to_str().unwrap())
}

fn write(folder: &TempDir, bytes: &[u8]) -> PcapOptions {
    let path = folder.path().join("test.pcap");
    std::fs::File::create(&path)
        .unwrap()
        .write_all(bytes)
        .unwrap();
    options(&path)
}

struct Files(TempDir);

impl Harness for Files {
    fn capture(&mut self, frames: &[Vec<u8>], size: PoolSize) -> Source {
        let mut options = write(&self.0, &pcap_file(frames));
        if size == PoolSize::Tiny {
            options.pool.bytes = Some(0);
        }
        super::open(&options).unwrap()
    }
}

#[test]
fn the_pcap_source_conforms() {
    conformance::check(&mut Files(TempDir::new().unwrap()));
}

/// Packets read until the source ended, and why it ended.
fn read_all(mut source: Source) -> (u64, Option<String>) {
    let lanes = std::mem::take(&mut source.lanes);
    let mut distributor = Distributor::new(source.pool.clone(), lanes, Arc::new(NoSignal));
    let options = ReaderOptions {
        policy: Policy::Block,
        credit: None,
        ..ReaderOptions::default()
    };
    let (_, mut reader) = distributor.add_reader(&options).unwrap();
    let mut packets = 0;
    loop {
        let status = source.status();
        let moved = distributor.step().unwrap();
        while let NextBatch::Batch(batch) = reader.try_next().unwrap() {
            packets += u64::try_from(batch.packets().map(Result::unwrap).count()).unwrap();
        }
        match status {
            Status::Running | Status::Waiting => {}
            Status::Ended if moved => {}
            Status::Ended => return (packets, None),
            Status::Failed(error) | Status::Removed(error) => {
                assert!(distributor.step().is_ok());
                while let NextBatch::Batch(batch) = reader.try_next().unwrap() {
                    packets += u64::try_from(batch.len()).unwrap();
                }
                return (packets, Some(error.to_string()));
            }
        }
    }
}

#[test]
fn packets_before_damage_are_delivered_before_the_error() {
    let folder = TempDir::new().unwrap();
    let frames = conformance::frames(100);
    let mut bytes = pcap_file(&frames);
    bytes.truncate(bytes.len() - 1);
    let source = super::open(&write(&folder, &bytes)).unwrap();
    let (packets, error) = read_all(source);
    assert_eq!(packets, 99);
    assert!(
        error.is_some_and(|error| error.contains("cut off")),
        "the damage is told"
    );
}

#[test]
fn a_packet_that_waits_while_rules_change_counts_in_its_flow_once() {
    const PACKETS: usize = 3000;
    let folder = TempDir::new().unwrap();
    let frame = flow::conformance::frame(17, 53, true, 0, 200);
    let mut options = write(&folder, &pcap_file(&vec![frame; PACKETS]));
    options.pool.bytes = Some(0);
    options.pool.chunk_bytes = Some(4096);
    options.start = SourceStart::WithRules;
    let mut source = super::open(&options).unwrap();
    let mut classify = |members| {
        let settings = flow::FlowSettings {
            standing: vec![flow::StandingCutOff {
                members: 1,
                cut: flow::CutOff {
                    packets: Some(PACKETS as u64 - 10),
                    bytes: None,
                },
            }],
            ..flow::FlowSettings::default()
        };
        let rules = Rules {
            flows: Some(settings),
            ..Rules::from(vec![Rule::everything(members)])
        };
        source.rules.classify(&rules).unwrap();
    };
    for members in [3, 1, 3, 1, 3, 1].repeat(20) {
        classify(members);
        std::thread::sleep(std::time::Duration::from_micros(300));
    }
    let flows = source.rules.flow_rules().unwrap();
    assert_eq!(read_all(source), (PACKETS as u64 - 10, None));
    let counts = flows.get(&flow::conformance::key(17, 53)).unwrap();
    assert_eq!(counts.directions[0].packets, PACKETS as u64);
    assert_eq!(flows.withheld(0)[0].packets, 10);
}

/// The options of a device text for this file.
fn asked(folder: &TempDir, frames: u32, options: &str) -> PcapOptions {
    let file = write(folder, &pcap_file(&conformance::frames(frames))).file;
    PcapOptions::from_device(&format!("pcap:{file}?{options}").parse().unwrap())
}

#[test]
fn a_lane_holds_exactly_the_chunks_and_packets_that_were_asked_for() {
    let folder = TempDir::new().unwrap();
    for m in [1, 16, 40] {
        let options = asked(&folder, 300, &format!("chunks=5&packets={m}&snap=96"));
        let mut source = super::open(&options).unwrap();
        let lanes = std::mem::take(&mut source.lanes);
        assert_eq!(lanes[0].chunks, 5);
        let pool = source.pool.clone();
        let mut distributor = Distributor::new(pool.clone(), lanes, Arc::new(NoSignal));
        let options = ReaderOptions {
            policy: Policy::Block,
            ..ReaderOptions::default()
        };
        let (id, mut reader) = distributor.add_reader(&options).unwrap();
        // Without a reader the file waits when all chunks are full.
        while distributor.chunks_in_use(LaneId(0)) < 5 {
            distributor.step().unwrap();
            std::thread::yield_now();
        }
        let first = distributor.oldest_held(id, LaneId(0)).unwrap();
        let state = pool.chunk(first).unwrap().state();
        assert_eq!((state.sealed, state.published), (true, m));
        let mut read = 0;
        while read < 300 {
            distributor.step().unwrap();
            while let NextBatch::Batch(batch) = reader.try_next().unwrap() {
                let (from, count) = (batch.first_sequence, u64::try_from(batch.len()).unwrap());
                let in_one = from % u64::from(m) + count <= u64::from(m);
                assert!(in_one, "{count} packets of a chunk from {from} on");
                read += count;
                let kept = |packet: Packet<'_>| packet.data.len() <= 96;
                assert!(batch.packets().all(|packet| kept(packet.unwrap())));
            }
        }
    }
}

#[test]
fn a_chunks_size_is_the_one_that_was_asked_for() {
    let folder = TempDir::new().unwrap();
    let source = super::open(&asked(&folder, 3, "chunk=64KiB&pool=1MiB")).unwrap();
    let geometry = *source.pool.geometry();
    assert_eq!((geometry.chunk_size, geometry.chunk_count), (65_536, 17));
    assert_eq!(geometry.snap_length, geometry.max_payload());
}

#[test]
fn packets_of_which_so_many_do_not_fit_are_refused_with_what_to_do() {
    let folder = TempDir::new().unwrap();
    let error = super::open(&asked(&folder, 3, "packets=64")).err().unwrap();
    assert!(
        error.to_string().contains("a smaller snap length (snap)"),
        "{error}"
    );
    let both = super::open(&asked(&folder, 3, "chunks=9&pool=1MiB"))
        .err()
        .unwrap();
    assert!(both.to_string().contains("give only one"), "{both}");
}

#[test]
fn a_file_without_packets_ends_at_once() {
    let folder = TempDir::new().unwrap();
    let source = super::open(&write(&folder, &pcap_file(&[]))).unwrap();
    assert_eq!(source.facts.link_type, 1);
    assert_eq!(read_all(source), (0, None));
}

#[test]
fn a_missing_file_is_named() {
    let error = super::open(&options(Path::new("/nowhere/at.pcap")))
        .err()
        .unwrap();
    assert!(error.to_string().contains("/nowhere/at.pcap"));
}

#[test]
fn a_stop_ends_a_paced_file_at_once() {
    let folder = TempDir::new().unwrap();
    let mut options = write(&folder, &pcap_file(&conformance::frames(100)));
    options.speed = Speed::Rate(ringtap_device::Rate::PacketsPerSecond(1));
    let mut source = super::open(&options).unwrap();
    source.stop();
    assert!(source.counts().lanes[0].offered < 100);
}

#[test]
fn what_no_rule_wants_is_counted_and_not_captured() {
    let frames: Vec<_> = (0..200).map(|n| vec![n; 60 + usize::from(n % 2)]).collect();
    let (first, all) = (pcap_file(&frames[..100]), pcap_file(&frames));
    let (from, mut to) = std::io::pipe().unwrap();
    to.write_all(&first).unwrap();
    let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&from));
    let mut source = super::open(&PcapOptions::new(path)).unwrap();
    while source.counts().lanes[0].delivered < 100 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let mut rule = Rule::everything(2);
    rule.filter = text::compile("len = 61", LinkType::ETHERNET, 65535).unwrap();
    source.rules.classify(&Rules::from(vec![rule])).unwrap();
    to.write_all(&all[first.len()..]).unwrap();
    drop(to);
    while !matches!(source.status(), Status::Ended) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let lane = source.counts().lanes[0];
    assert_eq!((lane.offered, lane.dropped.pool_full), (200, 0));
    // Half of the packets after the rules were set.
    assert_eq!((lane.delivered, lane.filtered), (150, 50), "{lane:?}");
}
