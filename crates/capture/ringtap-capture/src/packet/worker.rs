// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread of the `packet` source: copies finished blocks into the pool, and keeps count.
//!
//! Invariants
//! - Every packet that the kernel counted is copied, lost for want of a chunk, or lost in the
//!   kernel; once stopped, these add up.
#![forbid(unsafe_code)]

use std::{
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    time::{Duration, Instant},
};

use ringtap_filter::classifier::Verdict;
use ringtap_pool::{
    format::flag,
    wake::Signal,
    writer::{LaneWriter, PacketMeta},
};

use ringtap_ipc::event::{Event, sleep_until_readable};

use crate::classifier::LaneClassifier;
use ringtap_net::interface::Interface;

use super::{frame, frame::Frame, options, ring::Ring, socket::PacketSocket, system};
use crate::CaptureError;

/// Packets that become visible at a time while a block is copied.
const BATCH: u32 = 64;
/// Packets after which the kernel's 32-bit counters are read, long before they run over.
const READ_COUNTERS_EVERY: u64 = 1 << 20;
/// The kernel hands a block over within milliseconds; after this long it never will.
const LAST_BLOCKS: Duration = Duration::from_secs(2);
/// Length of a source and a destination address, after which a VLAN tag stands.
const ADDRESSES: usize = 12;

/// What the kernel counted, in 64 bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct KernelCounts {
    /// Packets that were there to be captured.
    pub(super) seen: u64,
    /// Those that never came out of the ring.
    pub(super) lost: u64,
    /// The thread has ended: nothing waits in the ring.
    pub(super) is_final: bool,
}

/// What the thread shares with its owner.
pub(super) struct Progress {
    socket: PacketSocket,
    kernel: Mutex<KernelCounts>,
    stopping: AtomicBool,
    stop: Event,
}

impl Progress {
    pub(super) fn new(socket: PacketSocket) -> Result<Arc<Self>, CaptureError> {
        Ok(Arc::new(Self {
            socket,
            kernel: Mutex::default(),
            stopping: AtomicBool::new(false),
            stop: Event::new().map_err(system("making an event"))?,
        }))
    }

    pub(super) fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// The kernel's counts up to now, or for good once the thread has ended.
    pub(super) fn kernel(&self) -> KernelCounts {
        let mut kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        // A socket whose statistics cannot be read has nothing new to tell.
        if let (false, Ok(new)) = (kernel.is_final, self.socket.statistics()) {
            kernel.seen += u64::from(new.packets);
            kernel.lost += u64::from(new.drops);
        }
        *kernel
    }

    /// Asks the thread to read what is left and to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Release);
        self.stop.signal();
    }

    /// Ends the counting: what the kernel counted and never handed over is lost.
    fn finish(&self, copied: u64) {
        self.kernel();
        let mut kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        kernel.lost = kernel.seen.saturating_sub(copied);
        kernel.is_final = true;
    }
}

/// The copying side.
pub(super) struct PacketWorker {
    ring: Ring,
    lane: PacketLane,
    progress: Arc<Progress>,
    interface: Interface,
    counters_read_at: u64,
}

/// The writing end, apart from the ring whose block a packet borrows.
struct PacketLane {
    writer: LaneWriter,
    classifier: LaneClassifier,
    /// A packet with its tag put back, for the classifier.
    tagged: Vec<u8>,
    is_ethernet: bool,
    largest_frame: u32,
    /// Packets that came out of the ring.
    copied: u64,
}

impl PacketWorker {
    pub(super) fn new(
        ring: Ring,
        writer: LaneWriter,
        classifier: LaneClassifier,
        progress: Arc<Progress>,
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
            interface: interface.clone(),
            counters_read_at: 0,
        }
    }

    /// Copies until it is stopped or the interface goes away, then what is left.
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
            if let Err(error) = progress.socket.take_error() {
                return Err(self.why_it_ended(error));
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

    /// Lets nothing more in, and copies until all that the kernel counted has come.
    fn copy_the_rest(&mut self) {
        // Should the kernel refuse, the time limit ends it.
        let _refused = self.progress.socket.attach(&options::nothing());
        let started = Instant::now();
        loop {
            let counted = self.progress.kernel();
            while self.ring.take(|block| self.lane.copy(block)).is_some() {}
            let all = counted.seen.saturating_sub(counted.lost);
            if self.lane.copied >= all || started.elapsed() > LAST_BLOCKS {
                return;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    fn why_it_ended(&self, error: std::io::Error) -> CaptureError {
        let interface = self.interface.name.clone();
        match (error.raw_os_error(), self.interface.refresh()) {
            (Some(libc::ENETDOWN), Ok(_)) => CaptureError::WentDown { interface },
            (Some(libc::ENETDOWN | libc::ENODEV), Err(_)) => CaptureError::Removed { interface },
            _ => system("receiving packets")(error),
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

    /// Puts a packet that is wanted into the pool as it was on the wire: with its VLAN tag where
    /// that belongs.
    fn stage(&mut self, frame: &Frame<'_>) {
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
        frame: &Frame<'_>,
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
        // A packet for which there is no chunk is counted by the writer.
        let _counted = self.writer.stage(&meta, parts);
    }

    fn classify(&mut self, parts: [&[u8]; 3], wire_length: u32) -> Option<Verdict> {
        let [first, tag, rest] = parts;
        let length = self
            .writer
            .captured_length(first.len() + tag.len() + rest.len());
        if tag.is_empty() || !self.classifier.has_rules() {
            let kept = length.min(first.len());
            return self.classifier.classify(&first[..kept], wire_length);
        }
        self.tagged.clear();
        for part in parts {
            self.tagged.extend_from_slice(part);
        }
        self.classifier
            .classify(&self.tagged[..length], wire_length)
    }

    fn flags(&self, frame: &Frame<'_>) -> u8 {
        let mut flags = 0;
        if frame.is_outgoing {
            flags |= flag::OUT;
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
