// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tap's programs and the links that attach them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use libbpf_rs::libbpf_sys::{BPF_TCX_EGRESS, BPF_TCX_INGRESS};

use ringtap_ipc::mutex::lock;
use ringtap_net::interface::Interface;

use ringtap_bpf::BpfError;
use ringtap_bpf::attach;
use ringtap_bpf::link::{self, Hook};
use ringtap_bpf::program::{NotLoaded, ProgramCopy, ProgramKind};

/// One of the programs in `bpf/tap.bpf.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TapProgram {
    Rx,
    RxBound,
    TcRx,
    TcTx,
    /// Forwards packets that an XDP program left to the network stack's buffers.
    TcForward,
}

impl TapProgram {
    pub(super) fn name(self) -> &'static str {
        match self {
            TapProgram::Rx => "rt_rx",
            TapProgram::RxBound => "rt_rx_bound",
            TapProgram::TcRx => "rt_tc_rx",
            TapProgram::TcTx => "rt_tc_tx",
            TapProgram::TcForward => "rt_tc_forward",
        }
    }

    /// The program that captures at `hook`.
    pub(super) fn at(hook: Hook) -> Self {
        match hook {
            Hook::NativeBound => TapProgram::RxBound,
            Hook::Native | Hook::Generic => TapProgram::Rx,
            Hook::Tc => TapProgram::TcRx,
        }
    }

    /// Type and hook for loading a changed copy.
    pub(super) fn kind(self, interface: u32) -> ProgramKind {
        let name = self.name();
        match self {
            TapProgram::Rx => ProgramKind::xdp(name, None),
            TapProgram::RxBound => ProgramKind::xdp(name, Some(interface)),
            TapProgram::TcRx | TapProgram::TcForward => ProgramKind::tc(name, BPF_TCX_INGRESS),
            TapProgram::TcTx => ProgramKind::tc(name, BPF_TCX_EGRESS),
        }
    }
}

/// A program attached to the interface.
#[derive(Debug)]
pub(super) struct AttachedProgram {
    pub(super) program: TapProgram,
    pub(super) hook: Hook,
    pub(super) link: OwnedFd,
    /// The loaded copy that the link attaches.
    pub(super) copy: ProgramCopy,
}

impl AttachedProgram {
    /// Attaches a loaded copy of a program of the tap at this hook.
    pub(super) fn new(
        program: TapProgram,
        hook: Hook,
        copy: ProgramCopy,
        interface: &Interface,
    ) -> Result<Self, BpfError> {
        Ok(AttachedProgram {
            link: link_of(program, hook, &copy, interface)?,
            program,
            hook,
            copy,
        })
    }

    /// Attaches the copy by a new link, also to another interface than before.
    ///
    /// # Errors
    ///
    /// As [`attach::attach`]; the old link stays.
    pub(super) fn attach_again(&mut self, interface: &Interface) -> Result<(), BpfError> {
        if let Err(reason) = self.copy.bind_to(interface.index) {
            // The interface may be gone again.
            interface.refresh()?;
            return Err(not_loaded(interface, &reason));
        }
        self.link = link_of(self.program, self.hook, &self.copy, interface)?;
        Ok(())
    }
}

fn link_of(
    program: TapProgram,
    hook: Hook,
    copy: &ProgramCopy,
    interface: &Interface,
) -> Result<OwnedFd, BpfError> {
    let loaded = copy.loaded().ok_or_else(|| interface.removed())?;
    match program {
        TapProgram::TcTx => link::attach_egress(loaded, interface.index)
            .map_err(|error| attach::refused(&error, Hook::Tc, None, interface)),
        _ => attach::attach(loaded, hook, interface),
    }
}

fn not_loaded(interface: &Interface, reason: &NotLoaded) -> BpfError {
    BpfError::Load {
        interface: interface.name.clone(),
        log: reason.to_string(),
    }
}

/// The attached programs of a tap.
#[derive(Debug, Default)]
pub(super) struct LinkSet {
    /// The programs that capture; empty once the tap is stopped.
    pub(super) capturing: Vec<AttachedProgram>,
    /// The program that forwards from the network stack's buffers.
    pub(super) forwarding: Option<AttachedProgram>,
    /// The interface to which bound programs are bound; `NO_INTERFACE` while the tap has none.
    pub(super) interface: u32,
}

impl LinkSet {
    /// Ids of the attached programs.
    pub(super) fn program_ids(&self) -> io::Result<Vec<u32>> {
        let all = self.capturing.iter().chain(&self.forwarding);
        let loaded = all.filter_map(|attached| attached.copy.loaded());
        loaded.map(link::program_id).collect()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut AttachedProgram> {
        self.capturing.iter_mut().chain(&mut self.forwarding)
    }
}

/// The attached programs of a tap, which the rules' thread and the interface's monitor change.
#[derive(Clone)]
pub(super) struct Links(Arc<Mutex<LinkSet>>);

impl Links {
    pub(super) fn new(links: LinkSet) -> Self {
        Links(Arc::new(Mutex::new(links)))
    }

    /// Locks the links: no other thread changes them while the guard lives.
    pub(super) fn lock(&self) -> MutexGuard<'_, LinkSet> {
        lock(&self.0)
    }
}
