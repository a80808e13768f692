// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts of a bridge's inline reader in the kernel: the table of decided flows, and the state of the inline reader
//! (`bpf/verdict.h`).
//!
//! Invariants
//! - Only user space adds and removes entries; the programs count packets, and end entries.
//! - An entry that has ended decides nothing, and stays until user space has taken its counts.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex};

use libbpf_rs::{ErrorKind, MapCore as _, MapFlags, MapHandle};
use ringtap_bpf::object as bpf;
use ringtap_bpf::splice::{Code, SpliceError};
use ringtap_filter::flow::FlowId;
use ringtap_ipc::mutex::lock;
use ringtap_pool::memory::Words;

use super::flows::{bytes_of, hash_map, words};
use super::layout::InlineWords;

/// `RT_NO_INLINE`.
const MARK_INLINE: u64 = 0x5254_5f49_4e4c_494e;
/// Words of `struct rt_decided`.
pub(super) const DECIDED_WORDS: usize = 12;

/// What happens to the packets of a decided flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FlowFate {
    /// They are forwarded in the kernel.
    Pass = 1,
    /// They are dropped in the kernel.
    Drop = 2,
}

/// Counts of one direction of a decided flow, without the packets that waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecidedDirection {
    /// Packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// All their TCP flags, with those of the packet that was decided.
    pub flags: u8,
    /// Time of the last packet on CLOCK_MONOTONIC, in nanoseconds; 0 without packets.
    pub last_ns: u64,
}

/// A decided flow and its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecidedFlow {
    /// The flow.
    pub key: FlowId,
    /// Its fate; `None` if the entry has ended.
    pub fate: Option<FlowFate>,
    /// Time of the decision on CLOCK_MONOTONIC, in nanoseconds.
    pub decided_ns: u64,
    /// Time at which the entry ends, whatever happens.
    pub expires_ns: u64,
    /// The entry ends if the flow has no packets for longer than this, in nanoseconds.
    pub idle_ns: u64,
    /// From the lower address, and from the higher.
    pub directions: [DecidedDirection; 2],
}

impl DecidedFlow {
    /// Whether the entry has ended at this time.
    #[must_use]
    pub fn is_over(&self, now_ns: u64) -> bool {
        let [first, second] = self.directions.map(|direction| direction.last_ns);
        let last_ns = self.decided_ns.max(first).max(second);
        let is_idle = now_ns.saturating_sub(last_ns) > self.idle_ns;
        self.fate.is_none() || now_ns >= self.expires_ns || is_idle
    }

    fn to_bytes(self) -> Vec<u8> {
        let [first, second] = self.directions.map(|it| {
            let flags = u64::from(it.flags);
            [it.packets, it.bytes, flags, it.last_ns]
        });
        let fate = self.fate.map_or(0, |fate| fate as u32);
        let head = [
            u64::from(fate),
            self.decided_ns,
            self.expires_ns,
            self.idle_ns,
        ];
        let all = head.into_iter().chain(first).chain(second);
        all.flat_map(u64::to_ne_bytes).collect()
    }

    fn from_bytes(key: FlowId, bytes: &[u8]) -> Option<Self> {
        let [
            fate,
            decided_ns,
            expires_ns,
            idle_ns,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
        ] = words::<DECIDED_WORDS>(bytes)?;
        let direction = |[packets, bytes, flags, last_ns]: [u64; 4]| DecidedDirection {
            packets,
            bytes,
            flags: flags.to_le_bytes()[0],
            last_ns,
        };
        Some(DecidedFlow {
            key,
            fate: match fate & 3 {
                1 => Some(FlowFate::Pass),
                2 => Some(FlowFate::Drop),
                _ => None,
            },
            decided_ns,
            expires_ns,
            idle_ns,
            directions: [[a, b, c, d], [e, f, g, h]].map(direction),
        })
    }
}

/// The decided flows of a bridge; clones are the same table.
#[derive(Clone, Debug)]
pub struct DecidedFlows(Arc<MapHandle>);

impl PartialEq for DecidedFlows {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for DecidedFlows {}

impl DecidedFlows {
    /// An empty table.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn new(capacity: u32) -> io::Result<Self> {
        let map = hash_map("rt_decided", DECIDED_WORDS * 8, capacity)?;
        Ok(DecidedFlows(Arc::new(map)))
    }

    /// Makes a program use the table.
    pub(super) fn put_into(&self, code: &mut Code, from: i32) -> Result<(), SpliceError> {
        code.set_map(from, self.0.as_fd().as_raw_fd());
        code.set_number(MARK_INLINE, 1)
    }

    /// Adds a flow; `false` if the table is full, or has an entry for the flow.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn add(&self, flow: &DecidedFlow) -> io::Result<bool> {
        let added = self
            .0
            .update(&bytes_of(&flow.key), &flow.to_bytes(), MapFlags::NO_EXIST);
        match added {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::TooBig) => {
                Ok(false)
            }
            Err(error) => Err(bpf::io_error(&error)),
        }
    }

    /// The entry of a flow.
    #[must_use]
    pub fn get(&self, key: &FlowId) -> Option<DecidedFlow> {
        let found = self.0.lookup(&bytes_of(key), MapFlags::ANY);
        DecidedFlow::from_bytes(*key, &found.ok()??)
    }

    /// Removes the entry of a flow, and returns it.
    #[must_use]
    pub fn remove(&self, key: &FlowId) -> Option<DecidedFlow> {
        let removed = self.0.lookup_and_delete(&bytes_of(key));
        DecidedFlow::from_bytes(*key, &removed.ok()??)
    }
}

/// State of an inline reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum InlineState {
    /// It is not connected.
    #[default]
    Absent,
    /// Packets wait for the reader's verdicts.
    Deciding,
    /// A packet waited longer than the timeout.
    Late,
}

/// What the programs of one tap do for an inline reader; clones are the same.
#[derive(Clone)]
pub struct InlineControl {
    words: Words<InlineWords>,
    /// Mask bits of all members.
    members: Arc<Mutex<u64>>,
}

impl InlineControl {
    pub(super) fn new(words: Words<InlineWords>) -> Self {
        InlineControl {
            words,
            members: Arc::default(),
        }
    }

    fn words(&self) -> &InlineWords {
        &self.words[0]
    }

    /// Mask bits of the reader that sends waiting packets, and whether packets without a verdict pass.
    pub fn begin(&self, bridge: u64, passes: bool) {
        self.words().passes.store(u32::from(passes), Release);
        self.words().bridge.store(bridge, Release);
        self.set_mirrors(*lock(&self.members));
    }

    /// Mask bits of the inline reader, and its state.
    pub fn set(&self, reader: u64, state: InlineState) {
        // The program reads the state first: it knows the bits when packets wait.
        self.words().reader.store(reader, Release);
        self.set_mirrors(*lock(&self.members));
        self.words().state.store(state as u32, Release);
    }

    /// Mask bits of all members, from the next rules on.
    pub(super) fn set_members(&self, members: u64) {
        let mut all = lock(&self.members);
        *all = members;
        self.set_mirrors(members);
    }

    pub(super) fn members(&self) -> u64 {
        *lock(&self.members)
    }

    fn set_mirrors(&self, members: u64) {
        let words = self.words();
        let decide = words.bridge.load(Acquire) | words.reader.load(Acquire);
        let mirrors = members & !decide != 0;
        words.mirrors.store(u32::from(mirrors), Relaxed);
    }
}
