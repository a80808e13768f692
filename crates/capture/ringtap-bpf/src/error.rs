// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a program cannot be loaded or attached, and what to do about it.
//!
//! Invariants
//! - A message is complete; no variant has a source that would repeat it.

use ringtap_net::interface::InterfaceError;
use ringtap_net::kernel::TooOld;
use ringtap_net::rights::RightsError;

/// Why a program cannot be loaded or attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum BpfError {
    /// The interface was removed.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The process lacks a capability.
    #[error("{interface}: {reason}")]
    NoRights {
        interface: String,
        reason: RightsError,
    },
    /// The kernel lacks a feature.
    #[error("{interface}: {reason}")]
    TooOld { interface: String, reason: TooOld },
    /// Another XDP program is attached.
    #[error(
        "{interface}: another XDP program is attached (id {id}, `{name}`): {remedy}, \
         or use packet:{interface}"
    )]
    AnotherProgram {
        interface: String,
        id: u32,
        name: String,
        remedy: String,
    },
    /// Another capture of Ringtap runs on the interface, and one of both takes packets away.
    #[error(
        "{interface}: another Ringtap, {process}, {conflict}: stop that process, or read from its \
         hub (-i hub:GROUP)"
    )]
    AnotherRingtap {
        interface: String,
        process: String,
        conflict: &'static str,
    },
    /// The interface refuses the only mode that was allowed.
    #[error("{interface}: cannot attach in {mode} mode: {reason}")]
    Refused {
        interface: String,
        mode: &'static str,
        reason: String,
    },
    /// The kernel's verifier, or libbpf, refuses the program.
    #[error("{interface}: the kernel does not load the program: {log}")]
    Load { interface: String, log: String },
    /// The kernel has no memory for the pool's map.
    #[error(
        "{interface}: no memory for a pool of {pool_bytes} bytes: ask for a smaller one \
         (tap:{interface}?pool=64MiB), or raise the limit (the control group's memory.max; \
         before kernel 5.11 `ulimit -l`)"
    )]
    NoMemory { interface: String, pool_bytes: u64 },
}
