// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why AF_XDP cannot be a source, and what to do about it.
//!
//! Invariants
//! - A message says all; no variant has a source that would say it again.
#![forbid(unsafe_code)]

use std::io;

use ringtap_pool::format::GeometryError;

use crate::tap::TapError;
use ringtap_net::interface::InterfaceError;
use ringtap_net::rights::RightsError;

/// Why the `xdp` source cannot start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpError {
    /// The interface does not exist, is down, or went away.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The program in front of the sockets cannot be attached.
    #[error(transparent)]
    Program(#[from] TapError),
    /// Packets on this interface do not begin with an Ethernet header.
    #[error(
        "{interface}: not an Ethernet interface (its packets have link type {link_type}), which \
         the xdp source cannot capture: use packet:{interface}"
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
    /// AF_XDP has no such mode.
    #[error(
        "{interface}: AF_XDP stands behind XDP only: mode=native, generic or auto, or use \
         tap:{interface}?mode=tc"
    )]
    NoTc {
        /// The interface.
        interface: String,
    },
    /// A queue that the interface does not have.
    #[error(
        "{interface} has no receive queue {queue}: it has {count}, numbered from 0 \
         (an AF_XDP source takes those below 256)"
    )]
    NoQueue {
        /// The interface.
        interface: String,
        /// The queue asked for.
        queue: u16,
        /// Queues that there are.
        count: u32,
    },
    /// Somebody else's socket has the queue.
    #[error(
        "{interface}: receive queue {queue} is held by another AF_XDP socket, and still was after \
         {waited_ms} ms: `ss --xdp -ap` shows whose; stop that program, or use tap:{interface}"
    )]
    Busy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u16,
        /// How long it was tried.
        waited_ms: u128,
    },
    /// Cells that cannot be, with the chunks that were asked for.
    #[error(
        "{interface}: a chunk of {chunk_bytes} bytes has no room for a cell of {cell_bytes}: \
         ask for larger chunks (xdp:{interface}?chunk=64KiB)"
    )]
    Cells {
        /// The interface.
        interface: String,
        /// Bytes of a chunk.
        chunk_bytes: u32,
        /// Bytes of a cell.
        cell_bytes: u32,
    },
    /// Sizes that cannot be.
    #[error("{interface}: {reason}: change the pool or the chunk size")]
    Sizes {
        /// The interface.
        interface: String,
        /// What is wrong with them.
        reason: GeometryError,
    },
    /// The kernel does not pin the pool's memory.
    #[error(
        "{interface}: the kernel does not take a pool of {pool_bytes} bytes for AF_XDP: ask for a \
         smaller one (xdp:{interface}?pool=64MiB), or raise the limit (`ulimit -l`, or CAP_IPC_LOCK)"
    )]
    NoMemory {
        /// The interface.
        interface: String,
        /// Bytes asked for.
        pool_bytes: u64,
    },
    /// Frames that need several buffers, which kernel or driver do not give.
    #[error(
        "{interface}: frames of {frame_bytes} bytes need several buffers each, which AF_XDP cannot \
         have here ({reason}): lower the MTU to {most_bytes}, or use tap:{interface}"
    )]
    NoMultiBuffer {
        /// The interface.
        interface: String,
        /// Bytes of the largest frame.
        frame_bytes: u32,
        /// Largest MTU that would do.
        most_bytes: u32,
        /// What the kernel said.
        reason: io::Error,
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
