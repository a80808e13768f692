// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tap's programs and the links that attach them.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libbpf_rs::libbpf_sys::{BPF_TCX_EGRESS, BPF_TCX_INGRESS};

use ringtap_filter::ebpf::Hook as Context;

use crate::bpf::link::Hook;
use crate::bpf::program::ProgramKind;

/// One of the programs in `bpf/tap.bpf.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TapProgram {
    Rx,
    RxVlan,
    TcRx,
    TcTx,
    /// Forwards packets that an XDP program left to the network stack's buffers.
    TcForward,
}

impl TapProgram {
    pub(super) fn name(self) -> &'static str {
        match self {
            TapProgram::Rx => "rt_rx",
            TapProgram::RxVlan => "rt_rx_vlan",
            TapProgram::TcRx => "rt_tc_rx",
            TapProgram::TcTx => "rt_tc_tx",
            TapProgram::TcForward => "rt_tc_forward",
        }
    }

    /// The program that captures at `hook`.
    pub(super) fn at(hook: Hook) -> Self {
        match hook {
            Hook::NativeVlan => TapProgram::RxVlan,
            Hook::Native | Hook::Generic => TapProgram::Rx,
            Hook::Tc => TapProgram::TcRx,
        }
    }

    pub(super) fn is_xdp(self) -> bool {
        matches!(self, TapProgram::Rx | TapProgram::RxVlan)
    }

    /// Context of the program's filters.
    pub(super) fn context(self) -> Context {
        match self.is_xdp() {
            true => Context::Xdp,
            false => Context::Tc,
        }
    }

    /// Type and hook for loading a changed copy.
    pub(super) fn kind(self, interface: u32) -> ProgramKind {
        let name = self.name();
        match self {
            TapProgram::Rx => ProgramKind::xdp(name, None),
            TapProgram::RxVlan => ProgramKind::xdp(name, Some(interface)),
            TapProgram::TcRx | TapProgram::TcForward => ProgramKind::tc(name, BPF_TCX_INGRESS),
            TapProgram::TcTx => ProgramKind::tc(name, BPF_TCX_EGRESS),
        }
    }
}

/// A program attached to the interface.
#[derive(Debug)]
pub(super) struct AttachedProgram {
    pub(super) program: TapProgram,
    pub(super) link: OwnedFd,
    /// The loaded copy that the link attaches.
    pub(super) copy: OwnedFd,
}

/// The attached programs of a tap; empty once the tap is stopped.
#[derive(Clone)]
pub(super) struct Links(Arc<Mutex<Vec<AttachedProgram>>>);

impl Links {
    pub(super) fn new(links: Vec<AttachedProgram>) -> Self {
        Links(Arc::new(Mutex::new(links)))
    }

    /// Locks the links: no other thread changes them while the guard lives.
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<AttachedProgram>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
