// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links: they attach programs to an interface until their last descriptor is closed.
//!
//! Invariants
//! - Programs are attached by links only: whatever ends the process, the kernel detaches them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use libbpf_rs::libbpf_sys::{
    self, BPF_F_BEFORE, BPF_TCX_EGRESS, BPF_TCX_INGRESS, BPF_XDP, XDP_FLAGS_DRV_MODE,
    XDP_FLAGS_SKB_MODE,
};

/// Where the kernel runs a program on arriving packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// In the driver, bound to the interface: the program reads what the NIC knows of a packet.
    NativeBound,
    /// In the driver.
    Native,
    /// Before the network stack, on the kernel's packet buffer.
    Generic,
    /// At the traffic control hook.
    Tc,
}

impl Hook {
    /// The hook's name in messages.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Hook::NativeBound | Hook::Native => "native XDP",
            Hook::Generic => "generic XDP",
            Hook::Tc => "traffic control (tcx)",
        }
    }

    /// Whether XDP programs run at this hook.
    #[must_use]
    pub fn is_xdp(self) -> bool {
        self != Hook::Tc
    }

    /// Attaches a loaded program at this hook of an interface.
    pub fn attach(self, program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
        match self {
            Hook::NativeBound | Hook::Native => {
                link(program, interface, BPF_XDP, XDP_FLAGS_DRV_MODE)
            }
            Hook::Generic => link(program, interface, BPF_XDP, XDP_FLAGS_SKB_MODE),
            // First in the chain: a program before it could hide packets from it.
            Hook::Tc => link(program, interface, BPF_TCX_INGRESS, BPF_F_BEFORE),
        }
    }
}

/// Attaches a loaded program to the packets that the host sends.
pub fn attach_egress(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
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

/// Replaces the program that a link attaches; the change happens between two packets.
///
/// A link that was detached from outside attaches nothing: the call then changes nothing.
///
/// # Errors
///
/// The kernel's; the old program stays attached.
pub fn replace(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open, and no options are given.
    let error =
        unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), ptr::null()) };
    match error {
        0 => Ok(()),
        error if -error == libc::ENOLINK => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Whether a link of an XDP or traffic control program is attached; another process may detach it
/// (`bpftool link detach`), and the removal of the interface does. A link about which the kernel gives
/// no answer counts as attached.
pub fn is_attached(link: BorrowedFd<'_>) -> bool {
    let mut info = libbpf_sys::bpf_link_info::default();
    let Ok(mut bytes) = u32::try_from(size_of_val(&info)) else {
        return true;
    };
    // SAFETY: `info` is as long as `bytes` says, and outlives the call.
    let error = unsafe {
        libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut bytes)
    };
    // SAFETY: the information of XDP links and that of traffic control links begin with the index of
    // the interface, 0 if there is none.
    error != 0 || unsafe { info.__bindgen_anon_1.xdp.ifindex } != 0
}

/// Detaches a link's program now, even if another process has a descriptor of the link.
pub fn detach(link: impl AsFd) {
    // SAFETY: a plain system call on an open descriptor. A failure (the interface is gone, say)
    // leaves nothing to do: closing the last descriptor ends the link anyway.
    let _gone = unsafe { libbpf_sys::bpf_link_detach(link.as_fd().as_raw_fd()) };
}

/// Ids of the traffic control programs (tcx) on an interface, in both directions; none where the
/// kernel has no tcx.
pub fn tcx_programs(interface: u32) -> Vec<u32> {
    let query = |hook| tcx_programs_at(interface, hook).unwrap_or_default();
    [BPF_TCX_INGRESS, BPF_TCX_EGRESS]
        .into_iter()
        .flat_map(query)
        .collect()
}

fn tcx_programs_at(interface: u32, hook: libbpf_sys::bpf_attach_type) -> io::Result<Vec<u32>> {
    /// The kernel's limit for one hook.
    const MAX_PROGRAMS: usize = 64;
    let mut ids = [0_u32; MAX_PROGRAMS];
    let mut answer = libbpf_sys::bpf_prog_query_opts {
        sz: libbpf_sys::size_t::try_from(size_of::<libbpf_sys::bpf_prog_query_opts>())
            .map_err(io::Error::other)?,
        prog_ids: ids.as_mut_ptr(),
        __bindgen_anon_1: libbpf_sys::bpf_prog_query_opts__bindgen_ty_1 {
            count: u32::try_from(MAX_PROGRAMS).map_err(io::Error::other)?,
        },
        ..Default::default()
    };
    let target = i32::try_from(interface).map_err(io::Error::other)?;
    // SAFETY: the answer and its array of `count` ids live during the call.
    match unsafe { libbpf_sys::bpf_prog_query_opts(target, hook, &raw mut answer) } {
        0 => Ok(ids.into_iter().filter(|id| *id != 0).collect()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Id of a loaded program.
pub fn program_id(program: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(program_info(program)?.id)
}

/// Instructions that the verifier followed for a program, over all paths.
pub fn verifier_steps(program: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(program_info(program)?.verified_insns)
}

fn program_info(program: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = u32::try_from(size_of_val(&info)).map_err(io::Error::other)?;
    // SAFETY: `info` is as long as `bytes` says, and outlives the call.
    let error = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut bytes)
    };
    match error {
        0 => Ok(info),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Ids of the XDP programs on an interface, the one in the driver first.
pub fn xdp_programs(interface: u32) -> io::Result<Vec<u32>> {
    let mut answer = libbpf_sys::bpf_xdp_query_opts {
        sz: libbpf_sys::size_t::try_from(size_of::<libbpf_sys::bpf_xdp_query_opts>())
            .map_err(io::Error::other)?,
        ..Default::default()
    };
    let target = i32::try_from(interface).map_err(io::Error::other)?;
    // SAFETY: the answer lives during the call and contains its size.
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
