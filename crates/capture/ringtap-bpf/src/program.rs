// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading of programs from instructions: changed copies of the compiled programs.
//!
//! Invariants
//! - A copy is loaded as libbpf loads the original: same name, type, hook and flags.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{
    self, BPF_F_XDP_DEV_BOUND_ONLY, BPF_F_XDP_HAS_FRAGS, BPF_PROG_TYPE_SCHED_CLS,
    BPF_PROG_TYPE_XDP, BPF_XDP,
};
use ringtap_filter::Program as Filter;
use ringtap_filter::ebpf::{FilterHook, TranslateError};

use crate::namespace::NetworkNamespace;
use crate::object;
use crate::splice::{Code, RawInsn, SpliceError};
use libbpf_rs::Object;

/// `RT_NO_RULES` of `bpf/splice.h`: a changed copy has the needs of the rules there.
const MARK_RULES: u64 = 0x5254_5f52_554c_4553;
/// `RT_FILTERS` of `bpf/splice.h`: a changed copy has the filters there.
const MARK_FILTERS: u64 = 0x5254_5f46_494c_5453;

/// The license of `bpf/*.bpf.c`.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";
/// Log level of the verifier: its reason and its statistics, without each step.
const REASONS_ONLY: u32 = 4;
const LOG_BYTES: usize = 64 << 10;

/// Why a changed copy of a program is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum NotLoaded {
    /// The kernel cannot run this program; a different one may load.
    #[error("{0}")]
    Refused(String),
    /// A resource is missing: the same program may load later.
    #[error("{0}")]
    Unavailable(String),
}

impl From<SpliceError> for NotLoaded {
    fn from(error: SpliceError) -> Self {
        NotLoaded::Refused(error.to_string())
    }
}

impl From<TranslateError> for NotLoaded {
    fn from(error: TranslateError) -> Self {
        NotLoaded::Refused(error.to_string())
    }
}

impl NotLoaded {
    /// The kernel's error with the reason in the verifier's log, which is empty if it was not reached.
    fn by_kernel(error: &io::Error, log: &str) -> Self {
        let is_word = |line: &&str| !line.trim().is_empty() && !is_statistics(line);
        let reason = match log.lines().rfind(is_word) {
            Some(line) => format!("{} ({error})", line.trim()),
            None => error.to_string(),
        };
        match error.raw_os_error() {
            Some(libc::ENOMEM) => NotLoaded::Unavailable(reason),
            Some(libc::E2BIG) => NotLoaded::Refused(reason),
            _ if log.is_empty() => NotLoaded::Unavailable(reason),
            _ => NotLoaded::Refused(reason),
        }
    }
}

fn is_statistics(line: &str) -> bool {
    ["processed ", "verification time ", "stack depth "]
        .iter()
        .any(|start| line.starts_with(start))
}

/// Name, type and hook of a program that is loaded from instructions.
#[derive(Clone, Copy, Debug)]
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

    /// The same, for another interface if the program is bound to one.
    fn at(self, interface: u32) -> Self {
        match self.interface {
            0 => self,
            _ => ProgramKind { interface, ..self },
        }
    }

    /// The program's context, for filters in it.
    pub fn context(self) -> FilterHook {
        match self.kind {
            BPF_PROG_TYPE_XDP => FilterHook::Xdp,
            _ => FilterHook::Tc,
        }
    }
}

/// In place of an interface: a program that is bound to one is loaded later, when there is one.
pub const NO_INTERFACE: u32 = u32::MAX;

/// A program. One that is bound to an interface can be loaded again for another one, and is not loaded while
/// there is none.
#[derive(Debug)]
pub struct ProgramCopy {
    fd: Option<OwnedFd>,
    /// Kind and instructions of a bound program.
    bound: Option<(ProgramKind, Vec<RawInsn>)>,
}

impl ProgramCopy {
    /// The program of this kind in a loaded object.
    ///
    /// # Errors
    ///
    /// There is no program of this name, or no descriptor is free.
    pub fn from_object(object: &Object, kind: ProgramKind) -> io::Result<Self> {
        let insns = object::insns(object, kind.name)?;
        let fd = object::program(object, kind.name)?;
        Ok(ProgramCopy::new(Some(fd), kind, insns))
    }

    fn new(fd: Option<OwnedFd>, kind: ProgramKind, insns: Vec<RawInsn>) -> Self {
        let bound = (kind.interface != 0).then_some((kind, insns));
        ProgramCopy { fd, bound }
    }

    /// The descriptor of the program, if it is loaded.
    #[must_use]
    pub fn loaded(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// The descriptor of the program.
    ///
    /// # Errors
    ///
    /// [`NotLoaded::Unavailable`]: it waits for its interface.
    pub fn into_fd(self) -> Result<OwnedFd, NotLoaded> {
        let absent = || NotLoaded::Unavailable("the program waits for its interface".to_owned());
        self.fd.ok_or_else(absent)
    }

    /// Loads a bound program again for this interface of the calling thread's namespace; no other program changes.
    ///
    /// # Errors
    ///
    /// The kernel does not load it; the copy stays as it was.
    pub fn bind_to(&mut self, interface: u32) -> Result<(), NotLoaded> {
        if let Some((kind, insns)) = &mut self.bound
            && kind.interface != interface
        {
            let next = kind.at(interface);
            self.fd = load_if_there(next, insns)?;
            *kind = next;
        }
        Ok(())
    }
}

/// Loads a program, unless it waits for its interface.
fn load_if_there(kind: ProgramKind, insns: &[RawInsn]) -> Result<Option<OwnedFd>, NotLoaded> {
    match kind.interface {
        NO_INTERFACE => Ok(None),
        _ => Ok(Some(load(kind, insns)?.program)),
    }
}

/// A program as first loaded, from which changed copies are made.
pub struct OriginalProgram {
    kind: ProgramKind,
    code: Code,
    /// Of the interface, whose index the copies have.
    namespace: NetworkNamespace,
}

impl OriginalProgram {
    /// The program of this kind and name in a loaded object; for the calling thread's namespace.
    ///
    /// # Errors
    ///
    /// There is no program of this name, it cannot be split, or no descriptor is free.
    pub fn from_object(object: &Object, kind: ProgramKind) -> io::Result<Self> {
        let code = Code::parse(&object::insns(object, kind.name)?);
        Ok(OriginalProgram {
            kind,
            code: code.map_err(io::Error::other)?,
            namespace: NetworkNamespace::here()?,
        })
    }

    /// The program's context, for filters in it.
    pub fn context(&self) -> FilterHook {
        self.kind.context()
    }

    /// Binds later copies of a bound program to this interface.
    pub fn bind_to(&mut self, interface: u32) {
        self.kind = self.kind.at(interface);
    }

    /// As [`ProgramCopy::bind_to`], for an interface of the program's namespace.
    ///
    /// # Errors
    ///
    /// As there, or the namespace cannot be entered.
    pub fn bind_copy(&self, copy: &mut ProgramCopy, interface: u32) -> Result<(), NotLoaded> {
        let bound = self.namespace.run(|| copy.bind_to(interface));
        bound.map_err(|error| no_namespace(&error))?
    }

    /// Loads a copy that runs these filters and knows the needs of the rules (`RT_NO_RULES`); `change`
    /// makes further changes. It can take seconds.
    pub fn load_copy(
        &self,
        needs: u32,
        filters: &[Filter],
        change: impl FnOnce(&mut Code) -> Result<(), NotLoaded>,
    ) -> Result<ProgramCopy, NotLoaded> {
        let mut code = self.code.clone();
        code.set_number(MARK_RULES, needs.into())?;
        code.set_function(MARK_FILTERS, Code::of_filters(filters, self.context())?)?;
        change(&mut code)?;
        let insns = code.to_insns()?;
        let loaded = self
            .namespace
            .run(|| load_if_there(self.kind, &insns))
            .map_err(|error| no_namespace(&error))?;
        Ok(ProgramCopy::new(loaded?, self.kind, insns))
    }
}

fn no_namespace(error: &io::Error) -> NotLoaded {
    let action = "the interface's network namespace cannot be entered";
    NotLoaded::Unavailable(format!("{action}: {error}"))
}

/// A program that the kernel loaded.
pub struct LoadedProgram {
    /// Its descriptor.
    pub program: OwnedFd,
    /// Instructions that the verifier followed, over all paths.
    pub verifier_steps: u32,
}

/// Loads `insns` as a program of this kind.
pub fn load(kind: ProgramKind, insns: &[RawInsn]) -> Result<LoadedProgram, NotLoaded> {
    let plain = |error: io::Error| NotLoaded::by_kernel(&error, "");
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
        return Err(NotLoaded::by_kernel(&error, &log));
    }
    Ok(LoadedProgram {
        // SAFETY: just made, and nobody else owns it.
        program: unsafe { OwnedFd::from_raw_fd(fd) },
        verifier_steps: verifier_steps(&log),
    })
}

/// Runs a loaded program `times` times on a packet; returns nanoseconds per run.
pub(crate) fn run(program: BorrowedFd<'_>, packet: &[u8], times: u16) -> io::Result<u32> {
    let size = size_of::<libbpf_sys::bpf_test_run_opts>();
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: libbpf_sys::size_t::try_from(size).map_err(io::Error::other)?,
        data_in: packet.as_ptr().cast(),
        data_size_in: u32::try_from(packet.len()).map_err(io::Error::other)?,
        repeat: times.into(),
        ..Default::default()
    };
    // SAFETY: packet and options live until the call returns, and have the sizes given.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    match result {
        0 => Ok(options.duration),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number in "processed 123 insns"; 0 if the log has none.
fn verifier_steps(log: &str) -> u32 {
    let mut counts = log.lines().filter_map(|line| {
        let count = line.strip_prefix("processed ")?.split(' ').next()?;
        count.parse().ok()
    });
    counts.next_back().unwrap_or(0)
}
