// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches are classified and counted while their chunk is still being filled.

use std::sync::Arc;

use ringtap_filter::{FilterLocation, Program};
use ringtap_ipc::subscription::Wanted;
use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::LaneId;
use ringtap_pool::reader;
use ringtap_pool::source;
use ringtap_pool::view::Pool;
use ringtap_pool::wake::NoSignal;
use ringtap_pool::writer::{LaneWriter, PacketMeta};

use crate::classified::Batch;
use crate::pending::Pending;
use crate::tally::Tally;

fn meta(mask: u64) -> PacketMeta {
    PacketMeta {
        mask,
        wire_length: 60,
        ..PacketMeta::default()
    }
}

struct OneReader {
    writer: LaneWriter,
    distributor: Distributor,
    reader: reader::Reader,
    wanted: Arc<Wanted>,
}

/// A reader with bit 1 of the group with bit 4.
fn one_reader() -> OneReader {
    let geometry = Geometry::contiguous(4096, 8, 1, 100).unwrap();
    let pool = Pool::on_heap(geometry);
    let chunks = source::share(&geometry, LaneId(0));
    // SAFETY: on the heap, so writable, and this lane has all chunks.
    let (writer, ends) = unsafe { source::lane(&pool, LaneId(0), chunks, Arc::new(NoSignal)) };
    let mut distributor = Distributor::new(pool, vec![ends], Arc::new(NoSignal));
    let (_, reader) = distributor.add_reader(&ReaderOptions::default()).unwrap();
    let wanted = Wanted {
        mask: 1,
        group: 4,
        marks: 0,
        place: FilterLocation::Source,
        filter: Program::everything(),
        from: vec![0],
    };
    OneReader {
        writer,
        distributor,
        reader,
        wanted: Arc::new(wanted),
    }
}

impl OneReader {
    fn write(&mut self, mask: u64) {
        self.writer.write(&meta(mask), [&[0; 60]]).unwrap();
        self.distributor.step().unwrap();
    }

    fn batch(&mut self) -> Batch {
        let reader::NextBatch::Batch(inner) = self.reader.try_next().unwrap() else {
            panic!("packets were published");
        };
        Batch::new(inner, &self.wanted, 0)
    }
}

#[test]
fn a_batch_for_others_stays_one_when_the_chunk_gets_a_packet_for_us() {
    let mut fixture = one_reader();
    fixture.write(2);
    let batch = fixture.batch();
    assert!(batch.is_for_others);
    fixture.write(1 | 4);
    let mut tally = Tally::new(1);
    tally.begin(&batch);
    assert_eq!((tally.filtered(), tally.other_members()), (1, 0));
    assert_eq!(batch.packets().count(), 0);
}

#[test]
fn packets_for_other_members_are_not_filtered() {
    let masks = [1 | 4, 2 | 4, 2 | 4, 8, 1 | 4, 8, 2 | 4];
    let mut fixture = one_reader();
    masks.iter().for_each(|mask| fixture.write(*mask));
    let (batch, mut counted) = (fixture.batch(), Tally::new(1));
    counted.count_batch(&batch, |_| true).unwrap();
    let mut pending = Pending::new(1);
    let mut taken = Tally::new(1);
    pending.load(batch, 0, &mut taken).unwrap();
    assert!(pending.take_one(&mut taken).is_some());
    assert_eq!((taken.packets(), taken.other_members()), (1, 0));
    assert_eq!(pending.take_all(&mut taken).len(), 1);
    assert_eq!((taken.filtered(), taken.other_members()), (1, 2));
    pending.finish(&mut taken);
    for tally in [counted, taken] {
        let counters = (tally.packets(), tally.filtered(), tally.other_members());
        assert_eq!(counters, (2, 2, 3));
    }
}

#[test]
fn a_whole_batch_for_other_members_is_not_filtered() {
    let mut fixture = one_reader();
    [2 | 4, 8, 2 | 4]
        .into_iter()
        .for_each(|mask| fixture.write(mask));
    let mut tally = Tally::new(1);
    tally.begin(&fixture.batch());
    assert_eq!((tally.filtered(), tally.other_members()), (1, 2));
}

#[test]
fn the_first_packet_for_this_reader_after_a_capture_gap_says_so() {
    let mut fixture = one_reader();
    let mut pending = Pending::new(1);
    let mut tally = Tally::new(1);
    let mut flags = |fixture: &mut OneReader, pending: &mut Pending| -> Vec<u16> {
        pending.load(fixture.batch(), 0, &mut tally).unwrap();
        let taken = pending.take_all(&mut tally);
        let flags = taken.iter().map(|packet| packet.flags).collect();
        pending.finish(&mut tally);
        flags
    };
    fixture.write(1);
    assert_eq!(flags(&mut fixture, &mut pending), [0]);
    assert_eq!(pending.gap(), None);
    fixture.writer.capture_gap(7, 3);
    fixture.write(2);
    assert!(flags(&mut fixture, &mut pending).is_empty());
    fixture.write(1);
    fixture.write(1);
    assert_eq!(flags(&mut fixture, &mut pending), [crate::AFTER_GAP, 0]);
    let (gap, lane, number) = pending.gap().unwrap();
    assert_eq!((gap.sequence, gap.duration_ns, gap.after), (1, 3, 7));
    assert_eq!((lane, number), (LaneId(0), 1));
}

#[test]
fn the_reader_runs_its_filter_only_on_packets_from_before_its_rules() {
    let ours = |place| {
        let mut fixture = one_reader();
        fixture.wanted = Arc::new(Wanted {
            mask: 1,
            group: 0,
            marks: 0,
            place,
            filter: Program::from_entries(&[6]).unwrap(),
            from: vec![2],
        });
        (0..4).for_each(|_| fixture.write(1));
        let batch = fixture.batch();
        let packets = batch.packets().map(|packet| packet.unwrap().is_ours());
        packets.collect::<Vec<_>>()
    };
    assert_eq!(ours(FilterLocation::Source), [false, false, true, true]);
    assert_eq!(ours(FilterLocation::Reader("why".into())), [false; 4]);
}
