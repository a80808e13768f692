// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording of a tap is in time order, though each CPU is a lane of its own.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringtap_file::FileReader;
use ringtap_testkit::{
    LIMIT, LaneOrder, Namespace, Running, require_root, say_skipped, send_on, usable_cpus,
};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");
/// Longer than a test may last: no packet is written because its window is over, and none is late.
const WINDOW_MS: &str = "86400000";

/// The packets in a file that may still be written.
fn order(file: &Path) -> LaneOrder {
    let mut order = LaneOrder::default();
    let name = file.display().to_string();
    let Ok(mut reader) = FileReader::open(&name) else {
        return order;
    };
    while let Ok(Some(packet)) = reader.next_packet() {
        order.add(packet.time_ns, packet.data);
    }
    order
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        sleep(Duration::from_millis(100));
    }
}

/// Records senders with these CPUs, and checks the order in the file.
fn records_in_order(test: &str, senders: &[&[usize]]) {
    let (net, folder) = (
        Namespace::with_veth(test),
        TempDir::new().expect("a folder"),
    );
    let file = folder.path().join("all.pcapng");
    let mut recorder = net.command(BINARY);
    recorder.args(["record", "-qv", "-i", "tap:rx0", "--in-order", WINDOW_MS]);
    recorder.arg("-w").arg(&file);
    recorder.args(["ether", "proto", "0x88b5"]);
    let recorder = Running::start(recorder);
    wait_until("it captures", || {
        fs::metadata(&file).is_ok_and(|file| file.len() > 0)
    });
    let senders = senders.iter().enumerate();
    let senders: Vec<_> = senders.map(|(at, cpus)| send_on(&net, at, cpus)).collect();
    wait_until("each sender's end is recorded", || {
        order(&file).has_ended(senders.len())
    });
    drop(senders);
    recorder.interrupt();
    let told = recorder.wait(LIMIT).success().stderr;
    assert!(told.contains(", 0 later than"), "{told}");
    order(&file).check();
}

#[test]
fn a_sender_that_changes_its_cpu_is_recorded_in_order() {
    require_root!();
    let cpus = usable_cpus();
    if cpus.len() < 2 {
        return say_skipped("there is one CPU, so one lane");
    }
    records_in_order("order-moved", &[&cpus]);
}

#[test]
fn senders_on_different_cpus_are_recorded_in_time_order() {
    require_root!();
    let cpus = usable_cpus();
    if cpus.len() < 2 {
        return say_skipped("there is one CPU, so one lane");
    }
    records_in_order("order-two", &[&cpus[..1], &cpus[1..2]]);
}

#[test]
fn record_keeps_time_order_unless_it_is_turned_off() {
    let folder = TempDir::new().expect("a folder");
    let name = |name: &str| folder.path().join(name).display().to_string();
    let mut sample = Command::new(BINARY);
    sample.args(["record", "-q", "-i", "sim:max?burst=100", "-w"]);
    sample.arg(name("in.pcapng"));
    let _made = Running::start(sample).wait(LIMIT).success();
    let told = |args: &[&str]| {
        let mut record = Command::new(BINARY);
        record.args(["record", "-qv", "-r", &name("in.pcapng"), "-w"]);
        record.arg(name("out.pcapng")).args(args);
        Running::start(record).wait(LIMIT).success().stderr
    };
    let told = [&[][..], &["--in-order", "0"]].map(told);
    let kept = told.each_ref().map(|text| text.contains(", 0 later than"));
    assert_eq!(kept, [true, false], "{told:?}");
}
