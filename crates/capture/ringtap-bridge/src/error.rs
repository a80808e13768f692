// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why two interfaces cannot be bridged, and what to do about it.
//!
//! Invariants
//! - A message is complete; no variant has a source that would repeat it.

use std::io;

use ringtap_bpf::BpfError;
use ringtap_capture::CaptureError;
use ringtap_net::interface::InterfaceError;

/// Why two interfaces cannot be bridged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum BridgeError {
    /// An interface does not exist, is down, or was removed.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A program cannot be attached.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// A tap cannot start, or a socket cannot be bound.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// Both interfaces are the same.
    #[error("a bridge of {interface} with itself: name two interfaces")]
    Same { interface: String },
    /// An interface has no Ethernet frames.
    #[error("{interface} cannot be bridged: its packets are not Ethernet frames")]
    NotEthernet { interface: String },
    /// An interface merges packets (LRO); the other interface could not send them.
    #[error(
        "{interface} merges packets in the NIC (LRO), which would leave larger than they arrived: \
         `ethtool -K {interface} lro off`, then start the bridge again"
    )]
    Lro { interface: String },
    /// Frames of one interface do not fit the other.
    #[error(
        "frames of {large} (MTU {large_bytes}) would not fit {small} (MTU {small_bytes}): \
         `ip link set {small} mtu {large_bytes}`, or {large} to {small_bytes}"
    )]
    Mtu {
        small: String,
        small_bytes: u32,
        large: String,
        large_bytes: u32,
    },
    /// An interface cannot send what native XDP redirects to it.
    #[error("{interface} {reason}; without `--mode native` packets go through the host's buffers")]
    NoRedirects { interface: String, reason: String },
    /// The filter loops over headers.
    #[error(
        "the bridge's filter loops over headers (protochain), and a packet could hold up all others: \
         use a filter without protochain"
    )]
    Loops,
    /// The filter does not fit into the kernel.
    #[error(
        "the bridge's filter cannot run in the kernel: {reason}; an inline reader can run it in user space \
         (`--inline`, and `ringtap inline --drop`)"
    )]
    Rules { reason: String },
    /// The kernel's tracepoints for redirected packets cannot be used.
    #[error("the tracepoints that count redirected packets cannot be used: {reason}")]
    Tracepoints { reason: String },
    /// A system call failed.
    #[error("{action} failed: {reason}")]
    System {
        action: &'static str,
        reason: io::Error,
    },
}

impl BridgeError {
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |reason| Self::System { action, reason }
    }
}
