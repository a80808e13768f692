// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a tap cannot be attached, or cannot go on, and what to do about it.
//!
//! Invariants
//! - A message says all; no variant has a source that would say it again.
#![forbid(unsafe_code)]

use std::io;

use ringtap_pool::format::GeometryError;

use ringtap_net::interface::InterfaceError;
use ringtap_net::kernel::TooOld;
use ringtap_net::rights::RightsError;

/// Why a tap cannot be attached, or cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapError {
    /// The interface does not exist, is down, or went away.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Packets on this interface do not begin with an Ethernet header.
    #[error(
        "{interface}: not an Ethernet interface (its packets have link type {link_type}), \
         which the tap cannot capture: use packet:{interface}"
    )]
    NotEthernet {
        /// The interface.
        interface: String,
        /// `LINKTYPE_*`.
        link_type: u16,
    },
    /// The process lacks a capability.
    #[error("{interface}: {reason}")]
    NoRights {
        /// The interface.
        interface: String,
        /// What is missing, and what to do.
        reason: RightsError,
    },
    /// Another XDP program is attached.
    #[error(
        "{interface}: another XDP program is attached (id {id}, `{name}`): {remedy}, \
         or use packet:{interface}"
    )]
    AnotherProgram {
        /// The interface.
        interface: String,
        /// Its id, as `bpftool prog` shows it.
        id: u32,
        /// Its name.
        name: String,
        /// How to detach it.
        remedy: String,
    },
    /// The kernel lacks something.
    #[error("{interface}: {reason}")]
    TooOld {
        /// The interface.
        interface: String,
        /// What it lacks, and what to use instead.
        reason: TooOld,
    },
    /// The kernel gave no memory for the pool.
    #[error(
        "{interface}: no memory for a pool of {pool_bytes} bytes: ask for a smaller one \
         (tap:{interface}?pool=64MiB), or raise the limit (the control group's memory.max; \
         before kernel 5.11 `ulimit -l`)"
    )]
    NoMemory {
        /// The interface.
        interface: String,
        /// Bytes asked for.
        pool_bytes: u64,
    },
    /// Sizes that cannot be.
    #[error(
        "{interface}: {reason}: change the pool (bytes, or with a unit, as 64MiB) or the chunk size"
    )]
    Sizes {
        /// The interface.
        interface: String,
        /// What is wrong with them.
        reason: GeometryError,
    },
    /// A queue that the interface does not have.
    #[error("{interface} has no receive queue {queue}: it has {count}, numbered from 0")]
    NoQueue {
        /// The interface.
        interface: String,
        /// The queue asked for.
        queue: u16,
        /// Queues that there are.
        count: u32,
    },
    /// A queue that cannot be selected.
    #[error("{interface}: receive queue {queue} cannot be selected: the tap knows 0 to 255")]
    Queue {
        /// The interface.
        interface: String,
        /// The queue asked for.
        queue: u16,
    },
    /// The interface refuses the only mode that was allowed.
    #[error("{interface}: cannot attach in {mode} mode: {reason}")]
    Refused {
        /// The interface.
        interface: String,
        /// The mode, in words.
        mode: &'static str,
        /// The kernel's reason.
        reason: String,
    },
    /// The kernel's verifier, or libbpf, refuses the program.
    #[error("{interface}: the kernel does not load the tap's program: {log}")]
    Load {
        /// The interface.
        interface: String,
        /// Last lines of libbpf's log.
        log: String,
    },
    /// A system call failed.
    #[error("{interface}: {action} failed: {reason}")]
    System {
        /// The interface.
        interface: String,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        reason: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use ringtap_net::kernel::{Feature, Version};

    #[test]
    fn no_message_is_said_twice() {
        let interface = || "eth0".to_owned();
        let errors = [
            TapError::TooOld {
                interface: interface(),
                reason: TooOld {
                    feature: Feature::Tcx,
                    running: Version(6, 1),
                },
            },
            TapError::Sizes {
                interface: interface(),
                reason: GeometryError::ChunkSize(5),
            },
            TapError::System {
                interface: interface(),
                action: "trying",
                reason: io::Error::other("it broke"),
            },
        ];
        for error in errors {
            assert!(
                error.source().is_none(),
                "{error} would be followed by its reason"
            );
            assert!(error.to_string().starts_with("eth0: "), "{error}");
        }
    }
}
