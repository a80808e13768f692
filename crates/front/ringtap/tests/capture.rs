// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures of simulated NICs, which need no rights and wait for their readers.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use ringtap::{Batch, Capture, CutOff, Error, Next, OpenOptions};
use ringtap_testkit::LIMIT;

/// Offers this many packets as fast as they are read, then ends.
const DEVICE: &str = "sim:max?burst=20000&flows=16";
const PACKETS: u64 = 20_000;

fn next(capture: &mut Capture) -> Option<Batch> {
    match capture.next(Some(LIMIT)).unwrap() {
        Next::Batch(batch) => Some(batch),
        Next::Empty => panic!("packets or the end come before the time limit"),
        Next::Ended => None,
    }
}

/// Counts the packets of a batch.
fn count(capture: &mut Capture, batch: &Batch) -> u64 {
    capture
        .packets(batch)
        .map(|packet| packet.map(|_| 1).unwrap())
        .sum()
}

/// Reads to the end.
fn read(capture: &mut Capture) {
    while let Some(batch) = next(capture) {
        count(capture, &batch);
    }
}

fn bytes(batch: &Batch) -> Vec<Vec<u8>> {
    let packets = batch.packets().map(|classified| classified.unwrap().packet);
    packets.map(|packet| packet.data.to_vec()).collect()
}

#[test]
fn a_capture_counts_every_packet_and_each_lane() {
    let mut capture = ringtap::open(DEVICE).unwrap();
    assert!(capture.facts().device.starts_with("sim:"));
    read(&mut capture);
    capture.outcome().unwrap();
    let counters = capture.all_counters().unwrap();
    assert_eq!(counters.total.delivered, PACKETS);
    assert!(counters.total.balance().holds() && !counters.hub_left);
    let lanes = counters.lanes.iter().map(|(_, lane)| lane.delivered);
    assert_eq!(lanes.sum::<u64>(), PACKETS);
    assert_eq!(capture.close().unwrap(), counters.total);
}

#[test]
fn packets_after_the_filter_changed_pass_the_new_one() {
    let mut capture = OpenOptions::new().filter("ip").open(DEVICE).unwrap();
    let first = next(&mut capture).unwrap();
    let before = count(&mut capture, &first);
    assert!(before > 0 && before < PACKETS);
    // No packet is this long.
    capture.set_filter("greater 20000").unwrap();
    drop(first);
    read(&mut capture);
    let counters = capture.counters().unwrap();
    assert_eq!(counters.delivered, before);
    assert_eq!(counters.delivered + counters.filtered, PACKETS);
    assert!(counters.balance().holds());
}

#[test]
fn a_cut_off_sees_the_first_packet_of_a_simulated_link() {
    let cut = CutOff {
        packets: Some(20),
        bytes: None,
    };
    for device in [
        "sim:max?burst=4000&flows=4",
        "sim:max?burst=4000&flows=4&queues=2",
    ] {
        let mut capture = OpenOptions::new().cutoff(cut).open(device).unwrap();
        read(&mut capture);
        let counters = capture.counters().unwrap();
        let seen = (counters.offered, counters.delivered, counters.shunted);
        assert_eq!(seen, (4000, 80, 3920), "{device}");
    }
}

#[test]
fn a_filter_that_is_not_valid_leaves_the_old_one() {
    let mut capture = OpenOptions::new().filter("ip").open(DEVICE).unwrap();
    let error = capture.set_filter("no such word").unwrap_err();
    assert!(matches!(error, Error::Filter(_)), "{error}");
    read(&mut capture);
    assert_eq!(capture.counters().unwrap().delivered, PACKETS);
}

#[test]
fn kept_batches_do_not_change_and_outlive_the_capture() {
    let mut capture = ringtap::open(DEVICE).unwrap();
    let mut kept: Vec<(Batch, Vec<Vec<u8>>)> = Vec::new();
    while let Some(batch) = next(&mut capture) {
        count(&mut capture, &batch);
        let copy = bytes(&batch);
        kept.push((batch, copy));
        if kept.len() > 2 {
            // Not the oldest batch, so the order differs.
            let (batch, copy) = kept.remove(1);
            assert_eq!(bytes(&batch), copy);
        }
    }
    assert_eq!(capture.close().unwrap().delivered, PACKETS);
    assert!(!kept.is_empty());
    for (batch, copy) in kept {
        assert_eq!(bytes(&batch), copy);
    }
}

#[test]
fn packets_that_were_not_written_are_counted_apart() {
    let mut capture = ringtap::open(DEVICE).unwrap();
    read(&mut capture);
    let bytes = capture.counters().unwrap().bytes;
    assert_eq!(capture.keep_written(PACKETS - 7, bytes - 700), 7);
    let counters = capture.counters().unwrap();
    assert_eq!(counters.dropped.not_written, 7);
    assert_eq!(
        (counters.delivered, counters.bytes),
        (PACKETS - 7, bytes - 700)
    );
    assert!(counters.balance().holds());
}

#[test]
fn a_capture_that_is_stopped_by_another_thread_ends() {
    let mut capture = ringtap::open("sim:1Mpps").unwrap();
    assert!(next(&mut capture).is_some());
    let control = std::sync::Arc::clone(capture.control());
    std::thread::spawn(move || control.stop()).join().unwrap();
    read(&mut capture);
    capture.outcome().unwrap();
}

#[test]
fn errors_say_what_is_wrong() {
    let failure = |device: &str| ringtap::open(device).err().unwrap().to_string();
    assert!(failure("eth0?no-such-option").contains("no-such-option"));
    assert!(failure("pcap:/no/such/file").contains("/no/such/file"));
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("no-hub");
    let error = OpenOptions::new()
        .socket(&socket)
        .open("hub:all")
        .err()
        .unwrap();
    assert!(matches!(error, Error::Connect(_)), "{error}");
}
