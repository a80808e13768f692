// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings around events.

use std::time::Duration;

use ringtap_filter::{LinkType, text};
use tempfile::TempDir;

use super::{Kept, START_NS, file, interface, packets, read, statistics};
use crate::events::Events;
use crate::machine::origin;
use crate::totals::PacketTotals;
use crate::writer::Writer;
use crate::{EventOptions, RecordOptions};

const SECOND_NS: u64 = 1_000_000_000;

/// Packets one second apart; those of these numbers are longer than all others.
fn seconds(count: usize, events: &[usize]) -> Vec<Kept> {
    let mut all = packets(count, 40);
    for (number, packet) in all.iter_mut().enumerate() {
        packet.time_ns = START_NS + u64::try_from(number).unwrap() * SECOND_NS;
        packet.wire_length = if events.contains(&number) { 9_000 } else { 600 };
    }
    all
}

/// Records around packets longer than 5,000 bytes; returns what was written and what was left out.
fn record(folder: &TempDir, max_bytes: u64, sent: &[Kept]) -> (Vec<Kept>, u64) {
    let filter = text::compile("greater 5000", LinkType::ETHERNET, 65_535).unwrap();
    let window = EventOptions {
        after: Duration::from_secs(5),
        max_bytes,
        ..EventOptions::before(Duration::from_secs(10))
    };
    let mut events = Events::with(&window, Some(filter));
    let options: RecordOptions = file(folder, "a.pcapng");
    let mut writer = Writer::create(&options, origin(), vec![interface()], START_NS).unwrap();
    for packet in sent {
        let _next = events.packet(&packet.packet(), &mut writer).unwrap();
    }
    writer.finish(&[statistics()]).unwrap();
    let kept = read(&options.file);
    let PacketTotals {
        packets: left_out,
        wire_bytes,
    } = events.left_out();
    let all: u64 = sent
        .iter()
        .map(|packet| u64::from(packet.wire_length))
        .sum();
    let written: u64 = kept
        .iter()
        .map(|packet| u64::from(packet.wire_length))
        .sum();
    assert_eq!(wire_bytes + written, all);
    (kept, left_out)
}

#[test]
fn what_lies_before_and_after_an_event_is_written_once() {
    let folder = TempDir::new().unwrap();
    // Two events whose times overlap, and one that is alone.
    let sent = seconds(200, &[50, 53, 120]);
    let (kept, left_out) = record(&folder, 1 << 20, &sent);
    let wanted: Vec<_> = [&sent[40..=58], &sent[110..=125]].concat();
    assert_eq!(kept, wanted);
    assert_eq!(left_out, u64::try_from(200 - wanted.len()).unwrap());
}

#[test]
fn without_an_event_nothing_is_written() {
    let folder = TempDir::new().unwrap();
    let (kept, left_out) = record(&folder, 1 << 20, &seconds(100, &[]));
    assert_eq!((kept.len(), left_out), (0, 100));
}

#[test]
fn little_memory_makes_the_time_before_an_event_shorter() {
    let folder = TempDir::new().unwrap();
    let sent = seconds(60, &[50]);
    // Each packet is a segment, and about 100 bytes.
    let (kept, _) = record(&folder, 500, &sent);
    let before = kept.len() - 6;
    assert!((2..8).contains(&before), "{before}");
    assert_eq!(kept, sent[50 - before..=55]);
}
