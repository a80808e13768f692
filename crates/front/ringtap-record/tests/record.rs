// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings by a program that uses the library only.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use ringtap::{Capture, OpenOptions};
use ringtap_file::FileReader;
use ringtap_record::{
    EventOptions, OptionsError, RecordError, RecordExt, RecordOptions, Recorded, StopAt,
};
use ringtap_testkit::LIMIT;
use tempfile::TempDir;

/// Offers this many packets as fast as they are read, then ends.
const DEVICE: &str = "sim:max?burst=20000&flows=16";
const PACKETS: u64 = 20_000;

fn to_file(folder: &TempDir, name: &str) -> RecordOptions {
    RecordOptions::to_file(folder.path().join(name).to_str().unwrap())
}

/// The files of a folder, in the order of their names.
fn files(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// The packets of a file, and the counters that it states at its end.
fn read(file: &str) -> (Vec<Vec<u8>>, String) {
    let mut reader = FileReader::open(file).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        packets.push(packet.data.to_vec());
    }
    let statistics = reader.interfaces()[0].statistics.clone();
    let counters = statistics.and_then(|it| it.comment).unwrap_or_default();
    (packets, counters)
}

fn record(capture: &mut Capture, options: &RecordOptions) -> Recorded {
    let recorded = capture.record(options).unwrap();
    assert_eq!((recorded.not_written, &recorded.notes[..]), (None, &[][..]));
    recorded
}

#[test]
fn a_recorded_file_has_every_packet_and_a_balanced_account() {
    let folder = TempDir::new().unwrap();
    let options = RecordOptions {
        filter: "udp src port 10000".to_owned(),
        ..to_file(&folder, "a.pcapng.zst")
    };
    let mut capture = OpenOptions::new()
        .filter(&options.filter)
        .open(DEVICE)
        .unwrap();
    let recorded = record(&mut capture, &options);
    let counters = capture.close().unwrap();
    assert!(counters.balance().holds(), "{}", counters.balance());
    assert_eq!(counters.offered, PACKETS);
    assert!(counters.filtered > 0 && counters.delivered > 0);
    assert_eq!(recorded.files.packets, counters.delivered);
    assert_eq!(
        (recorded.files.files, &recorded.files.file),
        (1, &options.file)
    );
    let (packets, told) = read(&options.file);
    assert_eq!(u64::try_from(packets.len()).unwrap(), counters.delivered);
    let all = format!("balanced: {PACKETS} offered");
    assert!(told.contains(&all), "{told}");

    // The file is a source, and its recording has the same packets.
    let again = to_file(&folder, "b.pcapng");
    let mut capture = ringtap::open(&format!("pcap:{}", options.file)).unwrap();
    record(&mut capture, &again);
    assert!(capture.close().unwrap().balance().holds());
    assert!(read(&again.file).0 == packets, "the packets differ");
}

#[test]
fn a_series_is_a_ring_and_runs_its_command_for_each_closed_file() {
    let folder = TempDir::new().unwrap();
    let closed = TempDir::new().unwrap();
    let list = closed.path().join("list");
    let options = RecordOptions {
        file_packets: Some(3_000),
        file_count: Some(2),
        when_closed: Some(format!("printf '%s\\n' >>{}", list.display())),
        ..to_file(&folder, "t.pcap")
    };
    let mut capture = ringtap::open(DEVICE).unwrap();
    let recorded = record(&mut capture, &options);
    assert_eq!((recorded.files.files, recorded.files.packets), (7, PACKETS));
    let kept = files(&folder);
    let packets: Vec<_> = kept.iter().map(|file| read(file).0.len()).collect();
    assert_eq!(packets, [3_000, 2_000]);
    let told = fs::read_to_string(list).unwrap();
    assert_eq!(told.lines().count(), 7);
    assert_eq!(told.lines().skip(5).collect::<Vec<_>>(), kept);
}

#[test]
fn a_recording_stops_after_packets_and_after_a_time() {
    let folder = TempDir::new().unwrap();
    let stop = |name, stop_at| RecordOptions {
        stop_at,
        ..to_file(&folder, name)
    };
    let packets = stop(
        "packets.pcapng",
        StopAt {
            packets: Some(777),
            ..StopAt::default()
        },
    );
    let mut capture = ringtap::open(DEVICE).unwrap();
    assert_eq!(record(&mut capture, &packets).files.packets, 777);
    assert_eq!(capture.delivered(), 777);

    let time = stop(
        "time.pcapng",
        StopAt {
            duration: Some(Duration::from_millis(300)),
            ..StopAt::default()
        },
    );
    let mut capture = ringtap::open("sim:1kpps").unwrap();
    let begin = Instant::now();
    let recorded = record(&mut capture, &time);
    assert!(begin.elapsed() >= Duration::from_millis(300));
    let counters = capture.close().unwrap();
    assert!(counters.balance().holds(), "{}", counters.balance());
    assert_eq!(recorded.files.packets, counters.delivered);
}

#[test]
fn another_thread_ends_a_recording() {
    let folder = TempDir::new().unwrap();
    let options = to_file(&folder, "a.pcapng");
    let mut capture = ringtap::open("sim:1kpps").unwrap();
    let control = capture.control().clone();
    let file = options.file.clone();
    let stopping = thread::spawn(move || {
        let begin = Instant::now();
        while fs::metadata(&file).is_err() && begin.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(1));
        }
        control.stop();
    });
    let recorded = record(&mut capture, &options);
    stopping.join().unwrap();
    let counters = capture.close().unwrap();
    assert!(counters.balance().holds(), "{}", counters.balance());
    assert_eq!(recorded.files.packets, counters.delivered);
}

#[test]
fn without_an_event_packets_are_delivered_but_not_written() {
    let folder = TempDir::new().unwrap();
    let options = RecordOptions {
        events: Some(EventOptions {
            trigger: Some("tcp port 1".to_owned()),
            ..EventOptions::before(Duration::from_secs(5))
        }),
        ..to_file(&folder, "a.pcapng")
    };
    let mut capture = ringtap::open(DEVICE).unwrap();
    let recorded = record(&mut capture, &options);
    let events = recorded.events.unwrap();
    assert_eq!((events.events, events.packets_outside), (0, PACKETS));
    assert_eq!(recorded.files.packets, 0);
    assert_eq!(capture.close().unwrap().delivered, PACKETS);
}

#[test]
fn a_full_disk_and_contradicting_options_are_errors_of_their_own() {
    let mut capture = ringtap::open(DEVICE).unwrap();
    let error = capture
        .record(&RecordOptions::to_file("/dev/full"))
        .unwrap_err();
    assert!(matches!(error, RecordError::Write(_)), "{error}");

    let contradiction = RecordOptions {
        file_count: Some(3),
        ..RecordOptions::to_file("t.pcapng")
    };
    let error = capture.record(&contradiction).unwrap_err();
    assert!(
        matches!(
            error,
            RecordError::Options(OptionsError::CountWithoutSeries)
        ),
        "{error}"
    );
}
