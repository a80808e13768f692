// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads changed copies of programs.
//!
//! Invariants
//! - A copy is loaded as libbpf loads the original: same name, type, hook and flags.

use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{
    self, BPF_F_XDP_DEV_BOUND_ONLY, BPF_F_XDP_HAS_FRAGS, BPF_PROG_TYPE_SCHED_CLS,
    BPF_PROG_TYPE_XDP, BPF_TCX_EGRESS, BPF_TCX_INGRESS, BPF_XDP,
};

use super::hook::Program;
use super::splice::Insn;

/// The license of `bpf/tap.bpf.c`.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";
/// The verifier tells why it refuses, and how large the program was for it; not each step.
const REASONS_ONLY: u32 = 4;
const LOG_BYTES: usize = 64 << 10;

/// Why the kernel does not load a copy.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: io::Error,
    /// The verifier's words, if it had any.
    pub(crate) log: String,
}

impl Refusal {
    /// Whether it is the program that is refused; else something is in short supply.
    pub(crate) fn is_of_the_program(&self) -> bool {
        match self.error.raw_os_error() {
            Some(libc::ENOMEM) => false,
            Some(libc::E2BIG) => true,
            _ => !self.log.is_empty(),
        }
    }

    /// The last words of the verifier.
    pub(crate) fn reason(&self) -> String {
        let is_word = |line: &&str| !line.trim().is_empty() && !is_statistics(line);
        match self.log.lines().rfind(is_word) {
            Some(line) => format!("{} ({})", line.trim(), self.error),
            None => self.error.to_string(),
        }
    }
}

fn is_statistics(line: &str) -> bool {
    ["processed ", "verification time ", "stack depth "]
        .iter()
        .any(|start| line.starts_with(start))
}

/// What the kernel is told of a program besides its instructions.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) kind: u32,
    pub(crate) hook: u32,
    pub(crate) flags: u32,
    /// The only interface that it will be attached to; 0 for any.
    pub(crate) interface: u32,
}

impl Shape {
    /// An XDP program that takes packets in several buffers, for one interface if it is given.
    pub(crate) fn xdp(name: &'static str, only_interface: Option<u32>) -> Self {
        let bound = only_interface.map_or(0, |_| BPF_F_XDP_DEV_BOUND_ONLY);
        Shape {
            name,
            kind: BPF_PROG_TYPE_XDP,
            hook: BPF_XDP,
            flags: BPF_F_XDP_HAS_FRAGS | bound,
            interface: only_interface.unwrap_or(0),
        }
    }

    fn tc(name: &'static str, hook: u32) -> Self {
        Shape {
            name,
            kind: BPF_PROG_TYPE_SCHED_CLS,
            hook,
            flags: 0,
            interface: 0,
        }
    }

    /// That of a filter which runs at the hook of this program.
    pub(super) fn alone(program: Program) -> Self {
        match program.is_xdp() {
            true => Shape::xdp("rt_filter", None),
            false => Shape::tc("rt_filter", BPF_TCX_INGRESS),
        }
    }

    /// That of one of the tap's programs.
    pub(super) fn of(program: Program, interface: u32) -> Self {
        let name = program.name();
        match program {
            Program::Rx => Shape::xdp(name, None),
            Program::RxVlan => Shape::xdp(name, Some(interface)),
            Program::TcRx | Program::TcForward => Shape::tc(name, BPF_TCX_INGRESS),
            Program::TcTx => Shape::tc(name, BPF_TCX_EGRESS),
        }
    }
}

/// A program that the kernel loaded.
pub(crate) struct LoadedProgram {
    pub(crate) program: OwnedFd,
    /// Instructions that the verifier followed, over all paths.
    pub(crate) verifier_steps: u32,
}

/// Loads `insns` as a program of this shape.
pub(crate) fn load(shape: &Shape, insns: &[Insn]) -> Result<LoadedProgram, Refusal> {
    let plain = |error: io::Error| Refusal {
        error,
        log: String::new(),
    };
    let name = CString::new(shape.name).map_err(|error| plain(error.into()))?;
    let mut log = vec![0_u8; LOG_BYTES];
    let size = |bytes: usize| libbpf_sys::size_t::try_from(bytes).map_err(io::Error::other);
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size(size_of::<libbpf_sys::bpf_prog_load_opts>()).map_err(plain)?,
        log_level: REASONS_ONLY,
        log_size: u32::try_from(log.len()).unwrap_or(0),
        log_buf: log.as_mut_ptr().cast(),
        expected_attach_type: shape.hook,
        prog_flags: shape.flags,
        prog_ifindex: shape.interface,
        ..Default::default()
    };
    let count = size(insns.len()).map_err(plain)?;
    // SAFETY: name, license, instructions (8 bytes each, as the kernel has them), options and
    // the log's buffer live during the call and have the sizes given.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            shape.kind,
            name.as_ptr(),
            LICENSE.as_ptr(),
            insns.as_ptr().cast(),
            count,
            &raw mut options,
        )
    };
    let log = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let log = String::from_utf8_lossy(log).into_owned();
    if fd < 0 {
        let error = io::Error::from_raw_os_error(-fd);
        return Err(Refusal { error, log });
    }
    Ok(LoadedProgram {
        // SAFETY: just made, and nobody else owns it.
        program: unsafe { OwnedFd::from_raw_fd(fd) },
        verifier_steps: verifier_steps(&log),
    })
}

/// The number in "processed 123 insns"; 0 if the log has none.
fn verifier_steps(log: &str) -> u32 {
    let mut counts = log.lines().filter_map(|line| {
        let count = line.strip_prefix("processed ")?.split(' ').next()?;
        count.parse().ok()
    });
    counts.next_back().unwrap_or(0)
}
