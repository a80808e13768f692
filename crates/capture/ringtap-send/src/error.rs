// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of sending, with their remedies.

use std::io;

use rustix::io::Errno;

use ringtap_file::ReadError;
use ringtap_net::interface::InterfaceError;
use ringtap_net::kernel::TooOld;
use ringtap_net::rights::RightsError;

use ringtap_packet::TrafficError;

/// Reason why packets cannot be sent, or no longer.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The interface does not exist, is down, or was removed while packets were sent.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The interface does not carry Ethernet frames.
    #[error("{name} carries packets of link type {link_type}: only Ethernet can be sent")]
    NotAnEthernetInterface { name: String, link_type: u16 },
    /// Frames exceed the MTU.
    #[error(
        "{size_bytes}-byte packets need an MTU of {needed_bytes} and {name} has {mtu_bytes}: \
         `ip link set {name} mtu {needed_bytes}`"
    )]
    Mtu {
        name: String,
        size_bytes: u32,
        needed_bytes: u32,
        mtu_bytes: u32,
    },
    /// The packets cannot be generated.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The options ask for live frames, which cannot be used.
    #[error("{0}; `--method packet` sends through AF_PACKET instead")]
    Live(NoLiveFrames),
    /// The process may not open a packet socket.
    #[error("sending needs CAP_NET_RAW: run with sudo, or give the program the capability")]
    NoRights,
    /// The file cannot be read to its end; the packets before the error were sent.
    #[error(transparent)]
    File(#[from] ReadError),
    /// The file does not hold Ethernet frames.
    #[error("{file}: packets of link type {link_type} cannot be sent, only Ethernet (1)")]
    NotEthernet { file: String, link_type: u16 },
    /// The file has no packets.
    #[error("{file}: the file contains no packet to send")]
    NoPackets { file: String },
    /// A pipe cannot be read twice.
    #[error("standard input cannot be sent repeatedly: save it to a file for --loop")]
    LoopOfStream,
    /// The sending thread cannot run on this CPU.
    #[error("CPU {cpu} cannot be used: /sys/devices/system/cpu/online lists the usable CPUs")]
    Cpu { cpu: usize },
    /// A system call failed.
    #[error("{action}: {source}")]
    Kernel {
        action: &'static str,
        source: io::Error,
    },
    /// The sending thread panicked.
    #[error("the sending thread ended unexpectedly: please report this")]
    Lost,
}

impl SendError {
    pub(super) fn kernel(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Kernel { action, source }
    }
}

/// Reason why live frames cannot be used.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoLiveFrames {
    /// The process may not load eBPF programs.
    #[error(transparent)]
    Rights(RightsError),
    /// The kernel lacks live frames.
    #[error("sending live frames {0}")]
    KernelTooOld(TooOld),
    /// The driver does not accept live frames.
    #[error(
        "{name} accepts no live frames ({}): {}",
        error_name(*.errno),
        if *.is_veth {
            "a veth does while its other end is up and has GRO (`ethtool -K PEER gro on`) \
             or an XDP program"
        } else {
            "its driver cannot (ndo_xdp_xmit), or only while the interface has an XDP program"
        }
    )]
    Device {
        name: String,
        errno: i32,
        is_veth: bool,
    },
    /// Frames are longer than a memory page can hold.
    #[error("{frame_bytes}-byte frames are too long for live frames, which hold {max_bytes}")]
    TooLong {
        frame_bytes: usize,
        max_bytes: usize,
    },
    /// Any other failure.
    #[error("live frames: {action}: {source}")]
    Kernel {
        action: &'static str,
        source: io::Error,
    },
}

/// The name of an error number, such as `ENXIO`, with its meaning for sending.
pub(super) fn error_name(errno: i32) -> String {
    let name = match Errno::from_raw_os_error(errno) {
        Errno::NXIO => "ENXIO",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::MSGSIZE => "EMSGSIZE: longer than the MTU allows",
        Errno::NOBUFS => "ENOBUFS: its queue was full",
        Errno::NETDOWN => "ENETDOWN: it is down",
        Errno::NOSPC => "ENOSPC: its queue was full",
        other => return io::Error::from(other).to_string(),
    };
    name.to_owned()
}
