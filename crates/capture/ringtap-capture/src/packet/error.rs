// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a packet socket cannot be a source, or ceased to be one.
#![forbid(unsafe_code)]

use std::io;

use ringtap_pool::format::GeometryError;

use crate::shape::ShapeError;
use ringtap_device::DeviceError;
use ringtap_net::interface::InterfaceError;
use ringtap_net::rights::RightsError;

/// Why the `packet` source cannot start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The interface is not there, is down, or cannot be asked.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// `CAP_NET_RAW` is missing.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// The device is of a kind that this version cannot start.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Receive queues were chosen.
    #[error(
        "{device}: a packet socket does not know which receive queue a packet came by: \
         use tap:{interface}{queues}, or leave out \"{queues}\""
    )]
    Queues {
        /// The device's text.
        device: String,
        /// The interface.
        interface: String,
        /// The choice of queues, as written.
        queues: String,
    },
    /// Packets of this interface have no link type that can be captured.
    #[error(
        "packets of {interface} have a link header that is not in this version (PPP, CAN, ...)"
    )]
    LinkType {
        /// The interface.
        interface: String,
    },
    /// The pool's sizes cannot be.
    #[error("pool: {0}")]
    Geometry(#[from] GeometryError),
    /// The pool cannot have the shape that was asked for.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Not even the smallest ring found memory.
    #[error(
        "the kernel has no memory for a ring of {bytes} bytes: free some, or stop other captures"
    )]
    NoMemory {
        /// Size of the smallest ring that was tried.
        bytes: u64,
    },
    /// The interface was set down during the capture.
    #[error("{interface} was set down during the capture; what came before is delivered")]
    WentDown {
        /// The interface.
        interface: String,
    },
    /// The interface was deleted, or moved to another namespace, during the capture.
    #[error("{interface} was removed during the capture; what came before is delivered")]
    Removed {
        /// The interface.
        interface: String,
    },
    /// The system refused memory, a descriptor or a thread.
    #[error("{action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl PacketError {
    pub(super) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
