// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding by a tap: destination, filter and counters.

use std::sync::atomic::Ordering::Acquire;

use ringtap_filter::Program as Filter;
use ringtap_filter::ebpf::FilterHook;
use ringtap_pool::memory::Words;

use super::layout::{ForwardedWords, LaneWords};
use super::programs::TapProgram;
use super::verdicts::DecidedFlows;
use ringtap_bpf::program::NotLoaded;
use ringtap_bpf::splice::{Code, SpliceError};

/// `RT_NO_FORWARD` and `RT_VERDICT`.
const MARK_FORWARD: u64 = 0x5254_5f46_4f52_5744;
const MARK_VERDICT: u64 = 0x5254_5f56_4552_4449;

/// Selects the packets to forward.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Passing {
    /// All packets.
    #[default]
    All,
    /// Packets that match the filter.
    Matching(Filter),
    /// Packets that do not match the filter.
    Others(Filter),
}

/// Whether arriving packets have complete checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksums {
    /// All checksums are complete, as on packets from a real NIC.
    #[default]
    Complete,
    /// The sender may have left checksums to a NIC: veth pairs, virtual machines.
    MayBeMissing,
}

/// Destination of arriving packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Index of the destination interface, in the same network namespace.
    pub interface: u32,
    /// Largest frame that the destination takes, in bytes.
    pub largest_frame: u32,
    /// State of the checksums of arriving packets.
    pub checksums: Checksums,
    /// Packets to forward; the others are dropped.
    pub passing: Passing,
    /// The flows that an inline reader decided; `None` if no reader decides.
    pub decided: Option<DecidedFlows>,
}

impl Forward {
    /// Splices the filter into a copy of one of the tap's programs; `decided` is the descriptor of its small table of
    /// decided flows.
    pub(super) fn put_into(
        &self,
        code: &mut Code,
        program: TapProgram,
        context: FilterHook,
        decided: i32,
    ) -> Result<(), NotLoaded> {
        if matches!(program, TapProgram::TcTx | TapProgram::TcForward) {
            return Ok(());
        }
        let (way, filter) = match &self.passing {
            Passing::All => (1, None),
            Passing::Matching(filter) => (2, Some(filter)),
            Passing::Others(filter) => (3, Some(filter)),
        };
        code.set_number(MARK_FORWARD, way)?;
        if let Some(flows) = &self.decided {
            flows.put_into(code, decided)?;
        }
        let Some(filter) = filter else { return Ok(()) };
        let function = Code::of_filters(std::slice::from_ref(filter), context)?;
        match code.set_function(MARK_VERDICT, function) {
            Err(SpliceError::NoMark { .. }) => Ok(()),
            done => Ok(done?),
        }
    }
}

/// Handle to a tap's forwarding counters; stays valid after the tap has stopped.
#[derive(Clone)]
pub struct Forwarded {
    pub(super) words: Words<ForwardedWords>,
    pub(super) lanes: Words<LaneWords>,
}

/// Counters of a tap's forwarding, in packets unless noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardedCounts {
    /// Packets that arrived.
    pub offered: u64,
    /// Packets that the filter dropped.
    pub filtered: u64,
    /// Packets that XDP redirected; the kernel's tracepoints report what happened to them.
    pub redirected: u64,
    /// Packets left to the network stack's buffers.
    pub to_stack: u64,
    /// Packets redirected from the network stack's buffers.
    pub from_stack: u64,
    /// Bytes of the packets that passed the filter.
    pub bytes: u64,
    /// Packets that a verdict on their flow dropped.
    pub blocked: u64,
    /// Packets that a verdict on their flow forwarded; among `redirected` and `to_stack`.
    pub passed: u64,
    /// Packets captured for the inline reader, and not forwarded.
    pub waiting: u64,
    /// Packets forwarded because there was no inline reader, or a late one; among `redirected` and `to_stack`.
    pub no_verdict_passed: u64,
    /// Packets dropped because there was no inline reader, or a late one.
    pub no_verdict_dropped: u64,
}

impl Forwarded {
    /// Reads the counters.
    #[must_use]
    pub fn counts(&self) -> ForwardedCounts {
        let mut sum = ForwardedCounts::default();
        for words in self.words.iter() {
            // Later counters first, so that `offered` is never behind the others.
            sum.from_stack += words.from_stack.load(Acquire);
            sum.to_stack += words.to_stack.load(Acquire);
            sum.redirected += words.redirected.load(Acquire);
            sum.filtered += words.filtered.load(Acquire);
            sum.bytes += words.bytes.load(Acquire);
            sum.blocked += words.blocked.load(Acquire);
            sum.passed += words.passed.load(Acquire);
            sum.waiting += words.waiting.load(Acquire);
            sum.no_verdict_passed += words.no_verdict_passed.load(Acquire);
            sum.no_verdict_dropped += words.no_verdict_dropped.load(Acquire);
            sum.offered += words.offered.load(Acquire);
        }
        sum
    }

    /// Sequence of the next packet that each lane captures.
    #[must_use]
    pub fn next_sequences(&self) -> Vec<u64> {
        self.lanes
            .iter()
            .map(|lane| lane.sequence.load(Acquire))
            .collect()
    }
}
