// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread of the `packet` source: copies finished blocks into the pool and counts packets.
//!
//! Invariants
//! - Every packet that the kernel counted is copied, lost because no chunk was free, or lost in the
//!   kernel. After a stop these numbers add up.

use std::{
    os::fd::AsFd,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    time::{Duration, Instant},
};

use ringtap_filter::{Program, classifier::Classification};
use ringtap_ipc::mutex::lock;
use ringtap_pool::{
    counters::Counters,
    format::flag,
    wake::Signal,
    writer::{LaneWriter, PacketMeta},
};

use ringtap_ipc::event::{Event, sleep_until_readable};

use crate::classifier::LaneClassifier;
use ringtap_net::interface::Interface;

use super::{
    frame,
    frame::RingFrame,
    ring::Ring,
    socket::{PacketSocket, system},
};
use crate::CaptureError;

/// Packets published at a time while a block is copied.
const BATCH: u32 = 64;
/// Number of packets between readings of the kernel's 32-bit counters, long before they overflow.
const READ_COUNTERS_EVERY: u64 = 1 << 20;
/// Longest wait for the last blocks; the kernel hands a block over within milliseconds.
const LAST_BLOCKS: Duration = Duration::from_secs(2);
/// Length of the two MAC addresses; a VLAN tag follows them.
const ADDRESSES: usize = 12;

/// State shared by the thread and its owner.
pub(super) struct PacketProgress {
    socket: PacketSocket,
    /// The kernel's counters in 64 bits: offered packets, and those that did not come out of the ring.
    kernel: Mutex<Counters>,
    /// The thread has ended; the ring is empty then. Set with `kernel`.
    is_final: AtomicBool,
    stopping: AtomicBool,
    stop: Event,
}

impl PacketProgress {
    pub(super) fn new(socket: PacketSocket) -> Result<Arc<Self>, CaptureError> {
        Ok(Arc::new(Self {
            socket,
            kernel: Mutex::default(),
            is_final: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            stop: Event::new().map_err(system("making an event"))?,
        }))
    }

    pub(super) fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// The kernel's counters now, or the final ones once the thread has ended.
    pub(super) fn kernel(&self) -> Counters {
        let mut kernel = lock(&self.kernel);
        // A socket whose statistics cannot be read adds nothing.
        if let (false, Ok(new)) = (self.is_final(), self.socket.statistics()) {
            kernel.offered += u64::from(new.packets);
            kernel.dropped.kernel += u64::from(new.drops);
        }
        *kernel
    }

    /// Whether the thread has ended, so that the kernel's counters are final.
    pub(super) fn is_final(&self) -> bool {
        // Pairs with the release store in `finish`, whose counters are read under the lock.
        self.is_final.load(Acquire)
    }

    /// Makes the thread copy the remaining packets and end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Release);
        self.stop.signal();
    }

    /// Makes the counters final: packets counted but never handed over are lost.
    fn finish(&self, copied: u64) {
        self.kernel();
        let mut kernel = lock(&self.kernel);
        kernel.dropped.kernel = kernel.offered.saturating_sub(copied);
        self.is_final.store(true, Release);
    }
}

/// Copies packets from the ring into the pool.
pub(super) struct PacketWorker {
    ring: Ring,
    lane: PacketLane,
    progress: Arc<PacketProgress>,
    counters_read_at: u64,
}

/// The writing side, separate from the ring whose block a packet borrows.
struct PacketLane {
    writer: LaneWriter,
    classifier: LaneClassifier,
    /// Buffer for a packet with its tag restored, for the classifier.
    tagged: Vec<u8>,
    is_ethernet: bool,
    largest_frame: u32,
    /// Number of packets taken from the ring.
    copied: u64,
}

impl PacketWorker {
    pub(super) fn new(
        ring: Ring,
        writer: LaneWriter,
        classifier: LaneClassifier,
        progress: Arc<PacketProgress>,
        interface: &Interface,
    ) -> Self {
        Self {
            ring,
            lane: PacketLane {
                writer,
                classifier,
                tagged: Vec::new(),
                is_ethernet: interface.link_type.is_ethernet(),
                largest_frame: interface.largest_frame_bytes(),
                copied: 0,
            },
            progress,
            counters_read_at: 0,
        }
    }

    /// Copies until stopped, also through outages of the interface; then copies the remaining packets.
    pub(super) fn work(&mut self) -> Result<(), CaptureError> {
        let outcome = self.copy_until_stopped();
        self.copy_the_rest();
        self.progress.finish(self.lane.copied);
        outcome
    }

    fn copy_until_stopped(&mut self) -> Result<(), CaptureError> {
        let progress = Arc::clone(&self.progress);
        let awaited = [progress.socket.as_fd(), progress.stop.as_fd()];
        while !progress.stopping.load(Acquire) {
            self.copy_finished_blocks();
            sleep_until_readable(&awaited, None).map_err(system("waiting for packets"))?;
            match progress.socket.take_error() {
                // The kernel resumes when the interface is up; the monitor reports the outage.
                Err(error) if error.raw_os_error() != Some(libc::ENETDOWN) => {
                    return Err(system("receiving packets")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn copy_finished_blocks(&mut self) {
        while self.ring.take(|block| self.lane.copy(block)).is_some() {
            if self.lane.copied - self.counters_read_at >= READ_COUNTERS_EVERY {
                self.counters_read_at = self.lane.copied;
                self.progress.kernel();
            }
            if self.progress.stopping.load(Acquire) {
                return;
            }
        }
    }

    /// Rejects new packets, and copies until all that the kernel counted have come.
    fn copy_the_rest(&mut self) {
        // If the kernel refuses the filter, the time limit ends the loop.
        let _refused = self
            .progress
            .socket
            .attach(Program::nothing().instructions());
        let started = Instant::now();
        loop {
            let counted = self.progress.kernel();
            while self.ring.take(|block| self.lane.copy(block)).is_some() {}
            let all = counted.offered.saturating_sub(counted.dropped.kernel);
            if self.lane.copied >= all || started.elapsed() > LAST_BLOCKS {
                return;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

impl PacketLane {
    fn copy(&mut self, block: &[u8]) {
        let mut copied = 0_u32;
        for frame in frame::frames(block) {
            self.classifier.begin();
            self.stage(&frame);
            copied += 1;
            if copied.is_multiple_of(BATCH) {
                self.end_batch();
            }
        }
        self.end_batch();
        self.copied += u64::from(copied);
    }

    fn end_batch(&mut self) {
        self.writer.publish();
        self.classifier.end();
    }

    /// Copies a wanted packet into the pool, with its VLAN tag restored.
    fn stage(&mut self, frame: &RingFrame<'_>) {
        let split = frame.data.split_at_checked(ADDRESSES);
        let tag = frame.tag.filter(|_| self.is_ethernet);
        match (tag, split) {
            (Some(tag), Some((addresses, rest))) => {
                let wire_length = frame.wire_length.saturating_add(4);
                let flags = self.flags(frame) | flag::VLAN_RESTORED;
                self.stage_wanted(frame, (wire_length, flags), [addresses, &tag, rest]);
            }
            _ => self.stage_wanted(
                frame,
                (frame.wire_length, self.flags(frame)),
                [frame.data, &[], &[]],
            ),
        }
    }

    fn stage_wanted(
        &mut self,
        frame: &RingFrame<'_>,
        (wire_length, flags): (u32, u8),
        parts: [&[u8]; 3],
    ) {
        let Some(verdict) = self.classify(parts, wire_length) else {
            return;
        };
        let meta = PacketMeta {
            time_ns: frame.time_ns,
            wire_length,
            flags,
            queue: 0,
            mask: verdict.mask,
            hash: verdict.hash,
        };
        // The writer counts a packet for which no chunk is free.
        let _counted = self.writer.stage(&meta, parts);
    }

    fn classify(&mut self, parts: [&[u8]; 3], wire_length: u32) -> Option<Classification> {
        let [first, tag, _] = parts;
        if tag.is_empty() || !self.classifier.has_rules() {
            return self.classifier.classify(first, wire_length);
        }
        self.tagged.clear();
        for part in parts {
            self.tagged.extend_from_slice(part);
        }
        self.classifier.classify(&self.tagged, wire_length)
    }

    fn flags(&self, frame: &RingFrame<'_>) -> u8 {
        let mut flags = 0;
        if frame.is_outgoing {
            flags |= flag::OUT;
        }
        if frame.has_nic_time {
            flags |= flag::NIC_TIME;
        }
        if frame.lacks_checksum {
            flags |= flag::PARTIAL_CHECKSUM;
        }
        if frame.is_merged || frame.wire_length > self.largest_frame {
            flags |= flag::SUPER;
        }
        flags
    }
}
