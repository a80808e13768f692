// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rotation of files, and rings.

use std::fs;

use ringtap_file::FileReader;
use tempfile::TempDir;

use super::{Kept, START_NS, file, interface, packets, read, statistics};
use crate::machine::origin;
use crate::writer::{FileNext, Writer};
use crate::{AtLimit, RecordOptions, StopAt, WriteError};

const SECOND_NS: u64 = 1_000_000_000;

/// Records as a verb would; packets are one second apart.
fn record(options: &RecordOptions, packets: &[Kept]) -> Result<u64, WriteError> {
    let mut now_ns = START_NS;
    options.check().unwrap();
    let mut writer = Writer::create(options, origin(), vec![interface()], now_ns)?;
    for packet in packets {
        let full = writer.packet(&packet.packet())?;
        now_ns += SECOND_NS;
        let old = writer.tick(now_ns)?;
        let budget = writer.keep_budget()?;
        let mut next = [full, old, budget];
        if next.contains(&FileNext::Rotate) {
            next[0] = writer.rotate(&[statistics()], now_ns)?;
        }
        if next.contains(&FileNext::Stop) {
            break;
        }
    }
    writer.finish(&[statistics()])?;
    Ok(writer.written().files)
}

fn files(folder: &TempDir) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn files_of_a_size_hold_all_packets_and_each_ends_with_statistics() {
    let folder = TempDir::new().unwrap();
    let sent = packets(1_000, 1_500);
    let options = RecordOptions {
        file_size: Some(50_000),
        ..file(&folder, "t.pcapng")
    };
    let made = record(&options, &sent).unwrap();
    let names = files(&folder);
    assert_eq!(u64::try_from(names.len()).unwrap(), made);
    assert!(made > 10);
    for name in &names {
        assert!(fs::metadata(name).unwrap().len() < 50_000 + 2_000 + 500);
        let mut reader = FileReader::open(name).unwrap();
        while reader.next_packet().unwrap().is_some() {}
        assert!(reader.interfaces()[0].statistics.is_some(), "{name}");
    }
    let together: Vec<_> = names.iter().flat_map(|name| read(name)).collect();
    assert!(together == sent, "the packets differ");
}

#[test]
fn a_ring_by_time_keeps_the_newest_files() {
    let folder = TempDir::new().unwrap();
    let sent = packets(100, 60);
    let options = RecordOptions {
        file_seconds: Some(10),
        file_count: Some(3),
        ..file(&folder, "t.pcapng")
    };
    assert_eq!(record(&options, &sent).unwrap(), 11);
    let names = files(&folder);
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names[0].contains("/t_00009_2"), "{names:?}");
    let together: Vec<_> = names.iter().flat_map(|name| read(name)).collect();
    assert_eq!(together, sent[80..]);
}

#[test]
fn names_with_a_time_are_made_by_strftime() {
    let folder = TempDir::new().unwrap();
    let options = RecordOptions {
        file_seconds: Some(30),
        ..file(&folder, "t-%s.pcapng")
    };
    assert_eq!(record(&options, &packets(70, 60)).unwrap(), 3);
    let seconds = START_NS / SECOND_NS;
    let wanted: Vec<_> = [0, 30, 60]
        .map(|after| file(&folder, &format!("t-{}.pcapng", seconds + after)).file)
        .into();
    assert_eq!(files(&folder), wanted);
}

#[test]
fn a_file_of_the_ring_that_somebody_deleted_is_no_error() {
    let folder = TempDir::new().unwrap();
    let options = RecordOptions {
        file_size: Some(10_000),
        file_count: Some(1),
        ..file(&folder, "t.pcapng")
    };
    let mut writer = Writer::create(&options, origin(), vec![interface()], START_NS).unwrap();
    for name in files(&folder) {
        fs::remove_file(name).unwrap();
    }
    let next = writer.rotate(&[statistics()], START_NS).unwrap();
    assert_eq!(next, FileNext::Continue);
    assert_eq!(files(&folder).len(), 1);
}

#[test]
fn contradicting_options_are_refused_before_anything_is_written() {
    let folder = TempDir::new().unwrap();
    let ring_of_nothing = RecordOptions {
        file_count: Some(3),
        ..file(&folder, "t.pcapng")
    };
    let split_pipe = RecordOptions {
        file: "-".to_owned(),
        file_seconds: Some(3),
        ..RecordOptions::default()
    };
    for options in [ring_of_nothing, split_pipe] {
        assert!(options.check().is_err(), "{options:?}");
    }
}

#[test]
fn a_ring_counts_the_files_of_earlier_runs_and_no_others() {
    let folder = TempDir::new().unwrap();
    let sent = packets(100, 60);
    let options = RecordOptions {
        file_seconds: Some(10),
        file_count: Some(3),
        ..file(&folder, "t.pcapng")
    };
    let foreign = folder.path().join("t_00001.pcapng");
    fs::write(&foreign, "not of this series").unwrap();
    // Its time stamp is younger than all others; the file itself is the oldest.
    let oldest = folder.path().join("t_00009_20991231235959.pcapng");
    fs::write(&oldest, "of an earlier run").unwrap();
    let old = fs::File::options().write(true).open(&oldest).unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();
    for _ in 0..3 {
        record(&options, &sent).unwrap();
    }
    let names = files(&folder);
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(foreign.exists() && !oldest.exists());
    let no_ring = RecordOptions {
        file_count: None,
        ..options
    };
    record(&no_ring, &sent[..1]).unwrap();
    assert!(names.iter().all(|name| fs::exists(name).unwrap()));
}

#[test]
fn few_packets_reach_the_file_with_a_tick() {
    let folder = TempDir::new().unwrap();
    let options = file(&folder, "t.pcapng");
    let sent = packets(3, 60);
    let mut writer = Writer::create(&options, origin(), vec![interface()], START_NS).unwrap();
    assert!(
        read(&options.file).is_empty(),
        "the head is there from the start"
    );
    for packet in &sent {
        assert_eq!(writer.packet(&packet.packet()).unwrap(), FileNext::Continue);
    }
    assert_eq!(
        writer.tick(START_NS + SECOND_NS / 2).unwrap(),
        FileNext::Continue
    );
    assert!(read(&options.file).is_empty());
    assert_eq!(
        writer.tick(START_NS + SECOND_NS).unwrap(),
        FileNext::Continue
    );
    assert_eq!(read(&options.file), sent);
}

fn bytes(folder: &TempDir) -> u64 {
    let sizes = files(folder)
        .into_iter()
        .map(|name| fs::metadata(name).unwrap().len());
    sizes.sum()
}

#[test]
fn a_budget_keeps_the_newest_files_of_all_runs() {
    let folder = TempDir::new().unwrap();
    let sent = packets(500, 1_500);
    let options = RecordOptions {
        max_total: Some(200_000),
        ..file(&folder, "t.pcapng")
    };
    for _ in 0..2 {
        let made = record(&options, &sent).unwrap();
        assert!(made > 10, "{made}");
        assert!(bytes(&folder) <= 200_000, "{}", bytes(&folder));
        let names = files(&folder);
        assert!(names.len() >= 7, "{names:?}");
        let mut by_age: Vec<_> = names
            .iter()
            .map(|name| (fs::metadata(name).unwrap().modified().unwrap(), name))
            .collect();
        by_age.sort();
        let together: Vec<_> = by_age.iter().flat_map(|(_, name)| read(name)).collect();
        let kept = together.len();
        assert!(together.ends_with(&sent[500 - kept.min(50)..]), "{kept}");
    }
}

#[test]
fn a_recording_stops_where_it_was_told_to() {
    let sent = packets(500, 1_500);
    let stop = |files: Option<u32>, size_bytes: Option<u64>| StopAt {
        files,
        size_bytes,
        ..Default::default()
    };
    let asked: [fn(&mut RecordOptions); 2] = [
        |options| options.max_total = Some(100_000),
        |options| options.stop_at.size_bytes = Some(100_000),
    ];
    for ask in asked {
        let folder = TempDir::new().unwrap();
        let mut options = RecordOptions {
            at_limit: AtLimit::Stop,
            ..file(&folder, "t.pcapng")
        };
        ask(&mut options);
        assert_eq!(record(&options, &sent).unwrap(), 1);
        let size = bytes(&folder);
        assert!((100_000..103_000).contains(&size), "{size}");
        let kept = read(&files(&folder)[0]);
        assert_eq!(kept, sent[..kept.len()]);
    }
    let folder = TempDir::new().unwrap();
    let options = RecordOptions {
        file_packets: Some(20),
        stop_at: stop(Some(3), None),
        ..file(&folder, "t.pcapng")
    };
    assert_eq!(record(&options, &sent).unwrap(), 3);
    let together: Vec<_> = files(&folder).iter().flat_map(|name| read(name)).collect();
    assert_eq!(together, sent[..60]);
}
