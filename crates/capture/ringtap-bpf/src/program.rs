// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading of programs from instructions: changed copies of the compiled programs.
//!
//! Invariants
//! - A copy is loaded as libbpf loads the original: same name, type, hook and flags.

use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{
    self, BPF_F_XDP_DEV_BOUND_ONLY, BPF_F_XDP_HAS_FRAGS, BPF_PROG_TYPE_SCHED_CLS,
    BPF_PROG_TYPE_XDP, BPF_TCX_INGRESS, BPF_XDP,
};

use crate::splice::RawInsn;

/// The license of `bpf/*.bpf.c`.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";
/// Log level of the verifier: its reason and its statistics, without each step.
const REASONS_ONLY: u32 = 4;
const LOG_BYTES: usize = 64 << 10;

/// Why the kernel does not load a copy.
#[derive(Debug)]
pub struct LoadRefusal {
    /// The kernel's error.
    pub error: io::Error,
    /// The verifier's log; empty if it was not reached.
    pub log: String,
}

impl LoadRefusal {
    /// Whether the kernel refuses this program; otherwise it lacks memory or another resource.
    pub fn is_of_the_program(&self) -> bool {
        match self.error.raw_os_error() {
            Some(libc::ENOMEM) => false,
            Some(libc::E2BIG) => true,
            _ => !self.log.is_empty(),
        }
    }

    /// The verifier's reason, and the error.
    pub fn reason(&self) -> String {
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

/// Name, type and hook of a program that is loaded from instructions.
pub struct ProgramKind {
    name: &'static str,
    kind: u32,
    hook: u32,
    flags: u32,
    /// The only interface that it will be attached to; 0 for any.
    interface: u32,
}

impl ProgramKind {
    /// An XDP program that takes packets of several buffers, bound to one interface if given.
    pub fn xdp(name: &'static str, only_interface: Option<u32>) -> Self {
        let bound = only_interface.map_or(0, |_| BPF_F_XDP_DEV_BOUND_ONLY);
        ProgramKind {
            name,
            kind: BPF_PROG_TYPE_XDP,
            hook: BPF_XDP,
            flags: BPF_F_XDP_HAS_FRAGS | bound,
            interface: only_interface.unwrap_or(0),
        }
    }

    /// A traffic control program for arriving packets.
    pub fn tc_ingress(name: &'static str) -> Self {
        ProgramKind::tc(name, BPF_TCX_INGRESS)
    }

    /// A traffic control program for this hook: `BPF_TCX_INGRESS` or `BPF_TCX_EGRESS`.
    pub fn tc(name: &'static str, hook: u32) -> Self {
        ProgramKind {
            name,
            kind: BPF_PROG_TYPE_SCHED_CLS,
            hook,
            flags: 0,
            interface: 0,
        }
    }
}

/// A program that the kernel loaded.
pub struct LoadedProgram {
    /// Its descriptor.
    pub program: OwnedFd,
    /// Instructions that the verifier followed, over all paths.
    pub verifier_steps: u32,
}

/// Loads `insns` as a program of this kind.
pub fn load(kind: &ProgramKind, insns: &[RawInsn]) -> Result<LoadedProgram, LoadRefusal> {
    let plain = |error: io::Error| LoadRefusal {
        error,
        log: String::new(),
    };
    let name = CString::new(kind.name).map_err(|error| plain(error.into()))?;
    let mut log = vec![0_u8; LOG_BYTES];
    let size = |bytes: usize| libbpf_sys::size_t::try_from(bytes).map_err(io::Error::other);
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size(size_of::<libbpf_sys::bpf_prog_load_opts>()).map_err(plain)?,
        log_level: REASONS_ONLY,
        log_size: u32::try_from(log.len()).unwrap_or(0),
        log_buf: log.as_mut_ptr().cast(),
        expected_attach_type: kind.hook,
        prog_flags: kind.flags,
        prog_ifindex: kind.interface,
        ..Default::default()
    };
    let count = size(insns.len()).map_err(plain)?;
    // SAFETY: name, license, instructions (8 bytes each, as the kernel has them), options and
    // the log's buffer live during the call and have the sizes given.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            kind.kind,
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
        return Err(LoadRefusal { error, log });
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
