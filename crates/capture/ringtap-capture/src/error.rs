// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a device cannot be captured, and what to do about it.
//!
//! Invariants
//! - A message is complete; no variant has a source that would repeat it.

use std::io;

use ringtap_bpf::BpfError;
use ringtap_device::RateError;
use ringtap_file::ReadError;
use ringtap_filter::LinkType;
use ringtap_net::interface::InterfaceError;
use ringtap_net::rights::RightsError;
use ringtap_packet::TrafficError;
use ringtap_pool::format::GeometryError;
use ringtap_pool::source::Status;

use crate::shape::ShapeError;
use crate::sim::MAX_QUEUES;

/// Why a source cannot start, or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum CaptureError {
    /// The device is a hub's group: readers subscribe to it.
    #[error("{0} is a group of a hub, not a source: subscribe to it")]
    Group(String),
    /// The pool is larger than the machine's memory.
    #[error(
        "{device}: a pool of {pool_bytes} bytes is more than the memory of this machine, \
         {memory_bytes} bytes: ask for a smaller one"
    )]
    Memory {
        device: String,
        pool_bytes: u64,
        memory_bytes: u64,
    },
    /// Neither the tap nor a packet socket can capture the interface.
    #[error("{tap}; and packet:{interface}: {packet}")]
    Neither {
        interface: String,
        tap: Box<CaptureError>,
        packet: Box<CaptureError>,
    },
    /// The pool cannot have the requested chunks.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The pool cannot have the requested sizes.
    #[error(
        "{device}: {reason}: change the pool (bytes, or with a unit, as 64MiB) or the chunk size"
    )]
    Sizes {
        device: String,
        reason: GeometryError,
    },
    /// The system refused memory, a descriptor or a thread.
    #[error("{device}: {action} failed: {reason}")]
    System {
        device: String,
        action: &'static str,
        reason: io::Error,
    },

    /// The interface does not exist, is down, or was removed.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The eBPF program cannot be loaded or attached.
    #[error(transparent)]
    Bpf(BpfError),
    /// Packets on this interface do not begin with an Ethernet header.
    #[error(
        "{interface}: not an Ethernet interface (its packets have link type {link_type}), \
         which {kind} cannot capture: use packet:{interface}"
    )]
    NotEthernet {
        interface: String,
        kind: &'static str,
        link_type: u16,
    },
    /// The interface does not have the queue.
    #[error("{interface} has no receive queue {queue}: it has {count}, numbered from 0")]
    NoQueue {
        interface: String,
        queue: u16,
        count: u32,
    },
    /// The programs cannot select the queue.
    #[error("{interface}: receive queue {queue} cannot be selected: only 0 to 255 can")]
    Queue { interface: String, queue: u16 },

    /// The meter counts all receive queues.
    #[error("{interface}: a meter in the kernel counts all receive queues: leave out \"@\"")]
    MeterQueues { interface: String },

    /// Loops hold up the CPU that receives packets.
    #[error(
        "{interface}: {loops} loops for each packet: a meter in the kernel runs at most {most}"
    )]
    MeterLoops {
        interface: String,
        loops: u32,
        most: u32,
    },
    /// Another program detached the capture program, and it cannot stay attached.
    #[error(
        "{interface}: another program detaches the capture program: {reason}; stop that program, \
         then start the capture again"
    )]
    Detached { interface: String, reason: String },

    /// AF_XDP has no traffic control mode.
    #[error(
        "{interface}: AF_XDP needs an XDP hook: use mode=native, generic or auto, or \
         tap:{interface}?mode=tc"
    )]
    NoTc { interface: String },
    /// Another socket has the queue.
    #[error(
        "{interface}: receive queue {queue} is still held by another AF_XDP socket after \
         {waited_ms} ms: stop the program that `ss --xdp -ap` shows, or use tap:{interface}"
    )]
    Busy {
        interface: String,
        queue: u16,
        waited_ms: u128,
    },
    /// No cell fits into a chunk of the requested size.
    #[error(
        "{interface}: a chunk of {chunk_bytes} bytes has no room for a cell of {cell_bytes}: \
         ask for larger chunks (xdp:{interface}?chunk=64KiB)"
    )]
    Cells {
        interface: String,
        chunk_bytes: u32,
        cell_bytes: u32,
    },
    /// The kernel does not pin the pool's memory.
    #[error(
        "{interface}: the kernel refuses a pool of {pool_bytes} bytes for AF_XDP: ask for a \
         smaller one (xdp:{interface}?pool=64MiB), or raise the limit (`ulimit -l`, or CAP_IPC_LOCK)"
    )]
    NotPinned { interface: String, pool_bytes: u64 },
    /// Kernel or driver have no packets of several buffers, which the MTU needs.
    #[error(
        "{interface}: frames of {frame_bytes} bytes need several buffers each, which AF_XDP does not \
         offer here ({reason}): lower the MTU to {max_bytes}, or use tap:{interface}"
    )]
    NoMultiBuffer {
        interface: String,
        frame_bytes: u32,
        max_bytes: u32,
        reason: io::Error,
    },

    /// The NIC gives no time stamps, or the source cannot read them.
    #[error("{device}: {reason}")]
    NoNicStamps {
        device: String,
        reason: &'static str,
    },
    /// The process lacks the capability for a packet socket.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// A packet socket cannot select receive queues.
    #[error(
        "{device}: a packet socket does not know the receive queue of a packet: \
         use tap:{interface}{queues}, or leave out \"{queues}\""
    )]
    QueuesOfPacketSocket {
        device: String,
        interface: String,
        queues: String,
    },
    /// Packets of this interface have no known link type.
    #[error(
        "{interface}: this version does not know the link header of its packets (PPP, CAN, ...)"
    )]
    LinkType { interface: String },
    /// The interface that came back after a removal has packets of another link type.
    #[error(
        "{interface} came back with link type {now} instead of {before}: start the capture again"
    )]
    OtherLinkType {
        interface: String,
        before: LinkType,
        now: LinkType,
    },
    /// The kernel has no memory for the smallest ring of a packet socket.
    #[error(
        "the kernel has no memory for a ring of {bytes} bytes: free some, or stop other captures"
    )]
    NoRing { bytes: u64 },

    /// The file cannot be read, or is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Packets of another link type than the first.
    #[error(
        "{file}: packet {packet} has link type \"{found}\", the packets before it have \"{first}\": \
         split the file by interface, e.g. with tshark -Y frame.interface_id==0 -w"
    )]
    MixedLinkTypes {
        file: String,
        packet: u64,
        found: LinkType,
        first: LinkType,
    },

    /// The link's rate is no rate.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// The generated traffic is impossible.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    #[error("{queues} receive queues: at most {MAX_QUEUES} can be simulated")]
    SimQueues { queues: u32 },
    #[error("{flows} flows cannot fill {queues} queues this way: ask for flows={least} or more")]
    SimFlows { flows: u32, queues: u32, least: u32 },
    #[error("{weights} weights for {queues} queues: give one for each")]
    SimWeights { weights: usize, queues: u32 },
    #[error("virtual time needs a rate: sim:10Gbps, not sim:max")]
    VirtualMax,
    #[error("there are no frames to simulate")]
    NoFrames,
    #[error("virtual time needs a number of packets: burst=PACKETS")]
    Endless,
    /// The pool reported a fault of its own in a simulated run.
    #[error("the run failed: {0}")]
    Run(String),
}

impl From<BpfError> for CaptureError {
    fn from(error: BpfError) -> Self {
        match error {
            BpfError::Interface(error) => CaptureError::Interface(error),
            error => CaptureError::Bpf(error),
        }
    }
}

impl CaptureError {
    /// The status of a source that this error ended.
    pub(crate) fn into_status(self) -> Status {
        match self {
            CaptureError::Interface(InterfaceError::Removed { .. }) => Status::Removed(self.into()),
            _ => Status::Failed(self.into()),
        }
    }

    /// Converts the error of a failed system call.
    pub fn system<E: Into<io::Error>>(
        device: &str,
        action: &'static str,
    ) -> impl FnOnce(E) -> Self + use<E> {
        let device = device.to_owned();
        move |reason| CaptureError::System {
            device,
            action,
            reason: reason.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use ringtap_net::kernel::{Feature, TooOld, Version};

    #[test]
    fn a_message_does_not_repeat_its_reason() {
        let interface = || "eth0".to_owned();
        let errors = [
            BpfError::TooOld {
                interface: interface(),
                reason: TooOld {
                    feature: Feature::Tcx,
                    running: Version(6, 1),
                },
            }
            .into(),
            CaptureError::Sizes {
                device: interface(),
                reason: GeometryError::ChunkSize(5),
            },
            CaptureError::system("eth0", "trying")(io::Error::other("it broke")),
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
