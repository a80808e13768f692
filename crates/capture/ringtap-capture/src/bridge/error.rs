// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why two interfaces cannot be bridged, and what to do about it.
//!
//! Invariants
//! - A message says all; no variant has a source that would say it again.
#![forbid(unsafe_code)]

use std::io;

use crate::CaptureError;
use ringtap_net::interface::InterfaceError;

/// Why two interfaces cannot be bridged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// One does not exist, is down, or cannot be asked.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// One cannot be attached to.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// There is only one.
    #[error("a bridge of {interface} with itself: name two interfaces")]
    Same {
        /// The interface.
        interface: String,
    },
    /// One has no Ethernet frames of others.
    #[error("{interface} cannot be bridged: it is no Ethernet interface")]
    NotEthernet {
        /// The interface.
        interface: String,
    },
    /// One merges packets that would not fit the other.
    #[error(
        "{interface} merges packets in the NIC (LRO), which would leave larger than they came: \
         `ethtool -K {interface} lro off`, then start again"
    )]
    Lro {
        /// The interface.
        interface: String,
    },
    /// Frames of one do not fit the other.
    #[error(
        "frames of {large} (MTU {large_bytes}) would not fit {small} (MTU {small_bytes}): \
         `ip link set {small} mtu {large_bytes}`, or {large} to {small_bytes}"
    )]
    Mtu {
        /// The interface with the smaller MTU.
        small: String,
        /// Its MTU in bytes.
        small_bytes: u32,
        /// The other one.
        large: String,
        /// Its MTU in bytes.
        large_bytes: u32,
    },
    /// One cannot send what native XDP redirects to it.
    #[error("{interface} {reason}; without `--mode native` packets go through the host's buffers")]
    NoRedirects {
        /// The interface.
        interface: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The filter does not fit into the kernel.
    #[error(
        "the bridge's filter cannot run in the kernel: {reason}; a bridge in user space runs it \
         (`--mode user`)"
    )]
    Rules {
        /// What the kernel, or the translator, said.
        reason: String,
    },
    /// What becomes of redirected packets cannot be seen.
    #[error("the kernel does not tell what becomes of redirected packets: {reason}")]
    Tracepoints {
        /// What it said.
        reason: String,
    },
    /// A system call failed.
    #[error("{action} failed: {reason}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        reason: io::Error,
    },
}

impl BridgeError {
    pub(super) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |reason| Self::System { action, reason }
    }
}
