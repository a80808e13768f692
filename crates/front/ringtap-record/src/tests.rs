// SPDX-License-Identifier: MIT OR Apache-2.0
//! Written files, read back by our reader and by other tools; full disks.

mod around;
mod failing;
mod packed;
mod series;
mod tools;

use ringtap_file::write::FilePacket;
use ringtap_file::{FileInterface, FileReader, PacketDirection, Resolution, Statistics};
use ringtap_filter::LinkType;
use ringtap_pool::counters::{Counters, Dropped};
use tempfile::TempDir;

use crate::machine::origin;
use crate::writer::{FileNext, Writer};
use crate::{RecordOptions, recorder};

const START_NS: u64 = 1_767_225_600_123_456_789;

/// A packet that can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    time_ns: u64,
    wire_length: u32,
    data: Vec<u8>,
    direction: PacketDirection,
    dropped_before: u64,
}

impl Kept {
    fn packet(&self) -> FilePacket<'_> {
        FilePacket {
            is_super: self.data.len() % 5 == 2,
            lacks_nic_time: self.data.len() % 7 == 3,
            wire_length: self.wire_length,
            direction: self.direction,
            dropped_before: self.dropped_before,
            // Of every length, so that each padding occurs.
            comment: Some(&"after a capture gap"[..self.data.len() % 20])
                .filter(|text| !text.is_empty()),
            ..FilePacket::new(self.time_ns, &self.data)
        }
    }
}

/// Packets of every length up to `longest`, in every direction, some cut, some after losses.
fn packets(count: usize, longest: usize) -> Vec<Kept> {
    let directions = [
        PacketDirection::Inbound,
        PacketDirection::Outbound,
        PacketDirection::Unknown,
    ];
    (0..count)
        .map(|number| {
            let bytes = number.to_le_bytes();
            let length = number * 7 % (longest + 1);
            Kept {
                time_ns: START_NS + u64::from_le_bytes(bytes) * 1_001,
                wire_length: u32::try_from(length + number % 5 * 100).unwrap(),
                data: (0..length)
                    .map(|at| bytes[at % 2] ^ at.to_le_bytes()[0])
                    .collect(),
                direction: directions[number % 3],
                dropped_before: if number % 4 == 3 { 9 } else { 0 },
            }
        })
        .collect()
}

fn read(path: &str) -> Vec<Kept> {
    let mut reader = FileReader::open(path).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        packets.push(Kept {
            time_ns: packet.time_ns,
            wire_length: packet.wire_length,
            data: packet.data.to_vec(),
            direction: packet.direction(),
            dropped_before: packet.drop_count().unwrap_or(0),
        });
    }
    packets
}

fn interface() -> FileInterface {
    FileInterface {
        name: Some("eth0".to_owned()),
        comment: Some("of a test".to_owned()),
        filter: Some("tcp port 80".to_owned()),
        ..FileInterface::new(0, LinkType::ETHERNET, 2_000)
    }
}

fn statistics() -> Statistics {
    let counters = Counters {
        offered: 115,
        delivered: 80,
        filtered: 20,
        bytes: 4_000,
        dropped: Dropped {
            nic: 1,
            kernel: 2,
            pool_full: 4,
            overrun: 8,
            ..Dropped::default()
        },
        ..Counters::default()
    };
    recorder::statistics(START_NS, START_NS + 5_000_000_000, &counters)
}

fn file(folder: &TempDir, name: &str) -> RecordOptions {
    RecordOptions {
        file: folder.path().join(name).to_str().unwrap().to_owned(),
        ..RecordOptions::default()
    }
}

/// Writes one file and returns its path.
fn write(folder: &TempDir, name: &str, packets: &[Kept]) -> String {
    let options = file(folder, name);
    let mut writer = Writer::create(&options, origin(), vec![interface()], START_NS).unwrap();
    for packet in packets {
        assert_eq!(writer.packet(&packet.packet()).unwrap(), FileNext::Continue);
    }
    writer.finish(&[statistics()]).unwrap();
    let written = writer.written();
    let size_bytes = std::fs::metadata(&options.file).unwrap().len();
    assert_eq!(written.size_bytes, size_bytes);
    assert_eq!(written.packets, u64::try_from(packets.len()).unwrap());
    assert_eq!((written.files, &written.file), (1, &options.file));
    options.file
}

#[test]
fn what_is_written_is_read_back_packet_for_packet() {
    let folder = TempDir::new().unwrap();
    let sent = packets(3_000, 1_600);
    let path = write(&folder, "a.pcapng", &sent);
    assert!(read(&path) == sent, "the packets differ");
}

#[test]
fn interface_and_counters_are_read_back() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "a.pcapng", &packets(1, 10));
    let mut reader = FileReader::open(&path).unwrap();
    while reader.next_packet().unwrap().is_some() {}
    let read = &reader.interfaces()[0];
    assert_eq!(read.name.as_deref(), Some("eth0"));
    assert_eq!(read.comment.as_deref(), Some("of a test"));
    assert_eq!(read.filter.as_deref(), Some("tcp port 80"));
    assert_eq!(read.resolution, Resolution::NANOSECONDS);
    assert_eq!(
        (read.link_type, read.snap_length),
        (LinkType::ETHERNET, 2_000)
    );
    let counted = read.statistics.clone().unwrap();
    assert_eq!(counted.start_ns, Some(START_NS));
    assert_eq!(counted.end_ns, Some(START_NS + 5_000_000_000));
    assert_eq!((counted.received, counted.dropped), (Some(115), Some(1)));
    assert_eq!(
        (counted.filter_accepted, counted.os_dropped),
        (Some(94), Some(14))
    );
    assert_eq!(counted.delivered, Some(80));
    let comment = counted.comment.unwrap();
    assert!(
        comment.contains(
            "dropped.overrun=8 dropped.not_written=0 dropped.no_verdict=0 bytes=4000; balanced: 115 offered"
        ),
        "{comment}"
    );
}

#[test]
fn a_packet_larger_than_any_reader_takes_is_cut() {
    let folder = TempDir::new().unwrap();
    let mut huge = packets(1, 0);
    huge[0].data = vec![7; 300_000];
    huge[0].wire_length = 300_000;
    let path = write(&folder, "a.pcapng", &huge);
    let read = read(&path);
    assert_eq!(
        (read[0].data.len(), read[0].wire_length),
        (262_144, 300_000)
    );
}

#[test]
fn a_text_longer_than_an_option_keeps_the_file_valid() {
    let folder = TempDir::new().unwrap();
    let options = file(&folder, "a.pcapng");
    let mut long = interface();
    long.filter = Some("or ".repeat(50_000));
    let mut writer = Writer::create(&options, origin(), vec![long], START_NS).unwrap();
    writer.finish(&[statistics()]).unwrap();
    assert!(read(&options.file).is_empty());
}
