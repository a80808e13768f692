// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the packets of a capture file, and computes when each is due.
//!
//! Invariants
//! - Packets keep the order of the file; a packet that is not due waits, none is skipped.
//! - Of a damaged file, all packets before the damage are sent.

use std::sync::Arc;

use ringtap_device::Speed;

use super::{batch::PacketBatch, error::SendError, live, shared::SharedRun};
use ringtap_file::{FileReader, Schedule};
use ringtap_filter::LinkType;

/// Bytes of an Ethernet header, the shortest packet that can be sent.
const MIN_BYTES: usize = 14;

/// A file, read once or repeatedly.
pub(super) struct Feed {
    reader: FileReader,
    path: String,
    repeat: bool,
    schedule: Schedule,
    /// A packet that is not due yet, and its time.
    waiting: Option<(u64, Vec<u8>)>,
    number: u64,
    short: u64,
    cut_was_said: bool,
    ended: bool,
    failure: Option<SendError>,
    shared: Arc<SharedRun>,
}

impl Feed {
    /// Opens the file; the stop flag also ends the wait for a silent pipe.
    pub(super) fn open(
        path: &str,
        repeat: bool,
        speed: Speed,
        shared: Arc<SharedRun>,
    ) -> Result<Self, SendError> {
        let reader = FileReader::open(path)?.stop_when(Arc::clone(&shared.stop));
        if repeat && reader.is_stream() {
            return Err(SendError::LoopOfStream);
        }
        Ok(Self {
            reader,
            path: path.to_owned(),
            repeat,
            schedule: Schedule::new(speed),
            waiting: None,
            number: 0,
            short: 0,
            cut_was_said: false,
            ended: false,
            failure: None,
            shared,
        })
    }

    /// Packets so far that were too short to send.
    pub(super) fn short(&self) -> u64 {
        self.short
    }

    /// End of a run after its last packet, including the time of that packet.
    pub(super) fn end_ns(&self) -> u64 {
        self.schedule.end_ns()
    }

    /// The error that ended the packets before the file, if there was one.
    pub(super) fn outcome(&mut self) -> Result<(), SendError> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Adds packets that are due at `now_ns`, until the batch holds `most`.
    ///
    /// Returns when the next packet is due; `None` at the end.
    pub(super) fn fill(
        &mut self,
        batch: &mut PacketBatch,
        now_ns: u64,
        most: usize,
    ) -> Option<u64> {
        if let Some((due_ns, packet)) = self.waiting.take() {
            if due_ns > now_ns {
                self.waiting = Some((due_ns, packet));
                return Some(due_ns);
            }
            batch.push(&packet);
        }
        let most = most.min(live::MAX_PACKETS);
        while !self.ended && batch.len() < most {
            let pipe_is_empty = self.reader.is_stream() && self.reader.buffered_bytes() == 0;
            if pipe_is_empty && !batch.is_empty() {
                break;
            }
            match self.read(batch, now_ns) {
                Ok(None) => {}
                Ok(Some(due_ns)) => return Some(due_ns),
                Err(error) => {
                    self.ended = true;
                    self.failure = Some(error);
                }
            }
        }
        (!self.ended).then_some(now_ns)
    }

    /// Reads one packet into the batch; if it has to wait, returns when it is due.
    fn read(&mut self, batch: &mut PacketBatch, now_ns: u64) -> Result<Option<u64>, SendError> {
        let Some(packet) = self.reader.next_packet()? else {
            return self.rewind().map(|()| None);
        };
        self.number += 1;
        if packet.link_type != LinkType::ETHERNET {
            return Err(SendError::NotEthernet {
                link_type: packet.link_type.0,
                file: self.path.clone(),
            });
        }
        if packet.data.len() < MIN_BYTES {
            self.short += 1;
            if self.short == 1 {
                self.shared.say(format!(
                    "packet {} of the file has {} bytes, less than an Ethernet header: such \
                     packets are not sent, and counted as refused",
                    self.number,
                    packet.data.len()
                ));
            }
            return Ok(None);
        }
        if packet.data.len() < packet.wire_length as usize && !self.cut_was_said {
            self.cut_was_said = true;
            self.shared.say(format!(
                "packet {} of the file was cut when it was recorded: such packets are sent cut",
                self.number
            ));
        }
        let due_ns = self
            .schedule
            .next_ns(packet.time_ns, packet.data.len() as u64);
        if due_ns <= now_ns {
            batch.push(packet.data);
            return Ok(None);
        }
        self.waiting = Some((due_ns, packet.data.to_vec()));
        Ok(Some(due_ns))
    }

    /// Reads the file again, or ends.
    fn rewind(&mut self) -> Result<(), SendError> {
        if self.number == 0 && !self.shared.is_stopped() {
            let file = self.path.clone();
            return Err(SendError::NoPackets { file });
        }
        if !self.repeat {
            self.ended = true;
            return Ok(());
        }
        self.reader = FileReader::open(&self.path)?.stop_when(Arc::clone(&self.shared.stop));
        self.schedule.again();
        Ok(())
    }
}
