// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread of the `pcap` source: reads packets and waits for their time and for free chunks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ringtap_pool::format::flag;
use ringtap_pool::number::to_u16;
use ringtap_pool::writer::{LaneWriter, PacketMeta};

use crate::CaptureError;
use crate::classifier::LaneClassifier;
use crate::source::SourceStart;
use ringtap_file::{FileReader, Pace, PaceTurn, PacketDirection, RawPacket};
use ringtap_filter::LinkType;

/// Packets that are published at a time when a file is read at top speed.
const BATCH: u64 = 64;
/// How long the thread sleeps when no chunk is free.
const NO_ROOM_NAP: Duration = Duration::from_micros(100);

/// Reads a file into a lane.
pub(super) struct FileWriter {
    reader: FileReader,
    lane: FileLane,
    link_type: Option<LinkType>,
    /// The first packet and its bytes, until rules can classify it.
    held: Option<(PacketMeta, Vec<u8>)>,
    unfit_times: Arc<AtomicU64>,
}

/// The writing side, apart from the reader whose buffer a packet borrows.
struct FileLane {
    writer: LaneWriter,
    classifier: LaneClassifier,
    pace: Pace,
    stop: Arc<AtomicBool>,
    offered: u64,
    /// All packets read from the file and due, once the thread has ended.
    all: Arc<OnceLock<u64>>,
    batch: u64,
}

impl FileWriter {
    pub(super) fn new(
        reader: FileReader,
        writer: LaneWriter,
        classifier: LaneClassifier,
        pace: Pace,
        stop: Arc<AtomicBool>,
    ) -> Self {
        // The next packet of a pipe may come late: publish each packet at once.
        let batch = if reader.is_stream() || !pace.is_top() {
            1
        } else {
            BATCH
        };
        let lane = FileLane {
            writer,
            classifier,
            pace,
            stop,
            offered: 0,
            all: Arc::default(),
            batch,
        };
        FileWriter {
            reader,
            lane,
            link_type: None,
            held: None,
            unfit_times: Arc::default(),
        }
    }

    /// Packets read from the file, once the thread has ended.
    pub(super) fn offered(&self) -> Arc<OnceLock<u64>> {
        Arc::clone(&self.lane.all)
    }

    /// The link type of the first packet, or of the first interface, else Ethernet.
    pub(super) fn link_type(&self) -> LinkType {
        let described = self
            .reader
            .interfaces()
            .first()
            .map(|interface| interface.link_type);
        self.link_type.or(described).unwrap_or(LinkType::ETHERNET)
    }

    /// Packets whose time does not fit, once the thread has ended.
    pub(super) fn unfit_times(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.unfit_times)
    }

    /// Reads the first packet, if there is one, and writes or holds it.
    pub(super) fn first(&mut self, start: SourceStart) -> Result<(), CaptureError> {
        self.next(start).map(|_more| ())
    }

    /// Writes the remaining packets until the file ends or the source is stopped.
    pub(super) fn write_all(&mut self) -> Result<(), CaptureError> {
        let outcome = self.write_rest();
        self.unfit_times.store(self.reader.unfit_times(), Relaxed);
        outcome
    }

    fn write_rest(&mut self) -> Result<(), CaptureError> {
        if let Some((meta, data)) = self.held.take()
            && !(self.lane.wait_for_rules() && self.lane.write(meta, &data))
        {
            return Ok(());
        }
        while self.next(SourceStart::AtOnce)? {}
        Ok(())
    }

    fn next(&mut self, start: SourceStart) -> Result<bool, CaptureError> {
        let Some(packet) = self.reader.next_packet()? else {
            return Ok(false);
        };
        let first = *self.link_type.get_or_insert(packet.link_type);
        if packet.link_type != first {
            let (found, number) = (packet.link_type, self.lane.offered + 1);
            let file = self.reader.file().to_owned();
            return Err(CaptureError::MixedLinkTypes {
                file,
                packet: number,
                found,
                first,
            });
        }
        let meta = unclassified(&packet);
        if start == SourceStart::WithRules {
            self.held = Some((meta, packet.data.to_vec()));
            return Ok(true);
        }
        Ok(self.lane.write(meta, packet.data))
    }
}

impl FileLane {
    /// Waits until the lane has rules; returns `false` if stopped before.
    fn wait_for_rules(&mut self) -> bool {
        loop {
            let has_rules = self.classifier.look_for_rules();
            if has_rules || self.stop.load(Relaxed) {
                return has_rules;
            }
            std::thread::sleep(NO_ROOM_NAP);
        }
    }

    /// Writes a packet when it is due and there is room; returns `false` if stopped before.
    fn write(&mut self, meta: PacketMeta, data: &[u8]) -> bool {
        if self.pace.wait(meta.time_ns) == PaceTurn::Stopped || !self.stage_wanted(meta, data) {
            return false;
        }
        self.offered += 1;
        if self.offered.is_multiple_of(self.batch) {
            self.writer.publish();
            self.classifier.end();
        }
        true
    }

    /// Stages a packet if a rule wants it; returns `false` if stopped while there was no room.
    fn stage_wanted(&mut self, mut meta: PacketMeta, data: &[u8]) -> bool {
        self.classifier.begin();
        let mut edition = self.classifier.edition();
        let mut verdict = self.classifier.select(data, meta.wire_length);
        while let Some(wanted) = verdict {
            if self.writer.has_room(data.len()) {
                // Not before: the packet may be selected again, but counts in its flow once.
                let wanted = self.classifier.withhold(wanted, data, meta.wire_length);
                let Some(wanted) = wanted else {
                    return true;
                };
                (meta.mask, meta.hash) = (wanted.mask, wanted.hash);
                // There is room, so this succeeds; the lane counts a failure.
                let _counted = self.writer.stage(&meta, [data]);
                return true;
            }
            // A lane without room has published all staged packets: the batch can end.
            self.classifier.end();
            if self.stop.load(Relaxed) {
                return false;
            }
            std::thread::sleep(NO_ROOM_NAP);
            self.classifier.begin();
            if self.classifier.edition() != edition {
                edition = self.classifier.edition();
                verdict = self.classifier.select(data, meta.wire_length);
            }
        }
        true
    }
}

/// A packet's slot before the packet is classified.
fn unclassified(packet: &RawPacket<'_>) -> PacketMeta {
    PacketMeta {
        time_ns: packet.time_ns,
        wire_length: packet.wire_length,
        flags: match packet.direction() {
            PacketDirection::Outbound => flag::OUT,
            _ => 0,
        },
        queue: to_u16(packet.interface),
        ..PacketMeta::default()
    }
}

impl Drop for FileLane {
    fn drop(&mut self) {
        self.writer.close();
        self.classifier.end();
        // Last: once it is set, the other counters are final.
        let _the_only_lane = self.all.set(self.offered);
    }
}
