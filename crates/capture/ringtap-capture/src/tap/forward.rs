// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding by a tap: where to, what, and what became of it.
#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::Acquire;

use ringtap_filter::Program as Filter;
use ringtap_filter::ebpf::{self, Hook as Context};
use ringtap_pool::memory::Words;

use super::layout::ForwardedWords;
use super::programs::TapProgram;
use super::rules::load::RulesNotLoaded;
use crate::bpf::splice::{Code, SpliceError};

/// `RT_NO_FORWARD` and `RT_VERDICT`.
const MARK_FORWARD: u64 = 0x5254_5f46_4f52_5744;
const MARK_VERDICT: u64 = 0x5254_5f56_4552_4449;

/// Which packets are forwarded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Passing {
    /// All of them.
    #[default]
    All,
    /// Those that the filter takes.
    Matching(Filter),
    /// Those that the filter does not take.
    Others(Filter),
}

/// Whether checksums of arriving packets are on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksums {
    /// They are: a real NIC's.
    #[default]
    Complete,
    /// Some may be left to a NIC that there is not: a veth's, a virtual machine's.
    MayBeMissing,
}

/// Where arriving packets go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Index of the other interface, in the same network namespace.
    pub interface: u32,
    /// Bytes of the largest frame that it takes.
    pub largest_frame: u32,
    /// What is known of arriving packets.
    pub checksums: Checksums,
    /// Which packets go there; the others are dropped.
    pub passing: Passing,
}

impl Forward {
    /// Puts the filter into a copy of one of the tap's programs.
    pub(super) fn put_into(
        &self,
        code: &mut Code,
        program: TapProgram,
    ) -> Result<(), RulesNotLoaded> {
        let context = match program {
            TapProgram::Rx | TapProgram::RxVlan => Context::Xdp,
            TapProgram::TcRx => Context::Tc,
            TapProgram::TcTx | TapProgram::TcForward => return Ok(()),
        };
        let (way, filter) = match &self.passing {
            Passing::All => (1, None),
            Passing::Matching(filter) => (2, Some(filter)),
            Passing::Others(filter) => (3, Some(filter)),
        };
        code.set_number(MARK_FORWARD, way)?;
        let Some(filter) = filter else { return Ok(()) };
        let insns = ebpf::classify(std::slice::from_ref(filter), context)?;
        let insns: Vec<_> = insns.into_iter().map(|insn| insn.0).collect();
        let function = Code::parse(&insns)?;
        match code.set_function(MARK_VERDICT, function) {
            Err(SpliceError::NoMark { .. }) => Ok(()),
            done => Ok(done?),
        }
    }
}

/// What a tap forwarded, for whoever asks, also after the tap has gone.
#[derive(Clone)]
pub struct Forwarded(pub(super) Words<ForwardedWords>);

/// Packets that a tap forwarded or did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardedCounts {
    /// That arrived.
    pub seen: u64,
    /// That the filter stopped.
    pub filtered: u64,
    /// Handed over by XDP; what became of them then the kernel tells elsewhere.
    pub redirected: u64,
    /// Left to the network stack's buffers.
    pub to_stack: u64,
    /// Handed over from there.
    pub from_stack: u64,
    /// Bytes of those that the filter let pass.
    pub bytes: u64,
}

impl Forwarded {
    /// The counters now.
    #[must_use]
    pub fn counts(&self) -> ForwardedCounts {
        let mut sum = ForwardedCounts::default();
        for words in self.0.iter() {
            // Later counters first, so that `seen` is never behind what became of the packets.
            sum.from_stack += words.from_stack.load(Acquire);
            sum.to_stack += words.to_stack.load(Acquire);
            sum.redirected += words.redirected.load(Acquire);
            sum.filtered += words.filtered.load(Acquire);
            sum.bytes += words.bytes.load(Acquire);
            sum.seen += words.seen.load(Acquire);
        }
        sum
    }
}
