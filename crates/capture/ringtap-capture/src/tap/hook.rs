// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attaches programs to an interface by links, which the kernel ends with their last descriptor.
//!
//! Invariants
//! - Nothing is attached but by a link: whatever kills the process, nothing stays behind.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libbpf_rs::libbpf_sys::{
    self, BPF_F_BEFORE, BPF_TCX_EGRESS, BPF_TCX_INGRESS, BPF_XDP, XDP_FLAGS_DRV_MODE,
    XDP_FLAGS_SKB_MODE,
};

/// One of the programs in `bpf/tap.bpf.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Rx,
    RxVlan,
    TcRx,
    TcTx,
    /// Forwards what an XDP program left to the network stack's buffers.
    TcForward,
}

impl Program {
    pub(super) fn name(self) -> &'static str {
        match self {
            Program::Rx => "rt_rx",
            Program::RxVlan => "rt_rx_vlan",
            Program::TcRx => "rt_tc_rx",
            Program::TcTx => "rt_tc_tx",
            Program::TcForward => "rt_tc_forward",
        }
    }

    pub(super) fn is_xdp(self) -> bool {
        matches!(self, Program::Rx | Program::RxVlan)
    }
}

/// A hook of the interface that is in use.
#[derive(Debug)]
pub(super) struct Fitted {
    pub(super) program: Program,
    pub(super) link: OwnedFd,
    /// The copy of the program that is attached.
    pub(super) attached: OwnedFd,
}

/// The hooks of a tap in use; none once it is stopped.
#[derive(Clone)]
pub(super) struct Links(Arc<Mutex<Vec<Fitted>>>);

impl Links {
    pub(super) fn new(links: Vec<Fitted>) -> Self {
        Links(Arc::new(Mutex::new(links)))
    }

    /// Keeps the links as they are while the guard lives.
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Fitted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where arriving packets are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// In the driver, which tells the VLAN tags that it strips.
    NativeVlan,
    /// In the driver.
    Native,
    /// Before the network stack, on the kernel's own packet buffer.
    Generic,
    /// At the traffic control hook.
    Tc,
}

impl Hook {
    pub(super) fn program(self) -> Program {
        match self {
            Hook::NativeVlan => Program::RxVlan,
            Hook::Native | Hook::Generic => Program::Rx,
            Hook::Tc => Program::TcRx,
        }
    }

    pub(crate) fn words(self) -> &'static str {
        match self {
            Hook::NativeVlan | Hook::Native => "native XDP",
            Hook::Generic => "generic XDP",
            Hook::Tc => "traffic control (tcx)",
        }
    }

    pub(super) fn is_xdp(self) -> bool {
        self != Hook::Tc
    }

    /// Attaches a loaded program here.
    pub(crate) fn attach(self, program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
        match self {
            Hook::NativeVlan | Hook::Native => {
                link(program, interface, BPF_XDP, XDP_FLAGS_DRV_MODE)
            }
            Hook::Generic => link(program, interface, BPF_XDP, XDP_FLAGS_SKB_MODE),
            // First in the row: a program before ours could hide packets from it.
            Hook::Tc => link(program, interface, BPF_TCX_INGRESS, BPF_F_BEFORE),
        }
    }
}

/// Attaches a loaded program to what the host sends.
pub(super) fn attach_egress(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    link(program, interface, BPF_TCX_EGRESS, BPF_F_BEFORE)
}

fn link(
    program: BorrowedFd<'_>,
    interface: u32,
    kind: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: libbpf_sys::size_t::try_from(size_of::<libbpf_sys::bpf_link_create_opts>())
            .map_err(io::Error::other)?,
        flags,
        ..Default::default()
    };
    let target = i32::try_from(interface).map_err(io::Error::other)?;
    // SAFETY: the program's descriptor is open and the options live during the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), target, kind, &raw const options)
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: just made, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Puts another program in the place of the one that a link attaches, at one stroke.
pub(crate) fn replace(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open, and no options are given.
    let error =
        unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), ptr::null()) };
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Detaches at once, whoever else may hold the link.
pub(crate) fn detach(link: OwnedFd) {
    // SAFETY: a plain system call on an open descriptor. A failure (the interface is gone, say)
    // leaves nothing to do: closing the descriptor below ends the link anyway.
    let _gone = unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
    drop(link);
}

/// Ids of the XDP programs on an interface, the one in the driver first.
pub(super) fn xdp_programs(interface: u32) -> io::Result<Vec<u32>> {
    let mut answer = libbpf_sys::bpf_xdp_query_opts {
        sz: libbpf_sys::size_t::try_from(size_of::<libbpf_sys::bpf_xdp_query_opts>())
            .map_err(io::Error::other)?,
        ..Default::default()
    };
    let target = i32::try_from(interface).map_err(io::Error::other)?;
    // SAFETY: the answer lives during the call and tells its size.
    match unsafe { libbpf_sys::bpf_xdp_query(target, 0, &raw mut answer) } {
        0 => {
            let ids = [
                answer.drv_prog_id,
                answer.hw_prog_id,
                answer.skb_prog_id,
                answer.prog_id,
            ];
            Ok(ids.into_iter().filter(|id| *id != 0).collect())
        }
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
