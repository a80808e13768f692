// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong while sending, and what to do about it.
#![forbid(unsafe_code)]

use std::io;

use rustix::io::Errno;

use ringtap_file::ReadError;
use ringtap_net::interface::InterfaceError;
use ringtap_net::kernel::TooOld;
use ringtap_net::rights::Capability;

use ringtap_packet::TrafficError;

/// Why packets cannot be sent, or no longer.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such interface, it is down, or it went away while packets were sent.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The interface carries something else than Ethernet frames.
    #[error("{name} carries packets of link type {link_type}: only Ethernet can be sent")]
    NotAnEthernetInterface { name: String, link_type: u16 },
    /// Frames do not fit the interface.
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
    /// Such packets cannot be made.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// Live frames were asked for and cannot be used.
    #[error("{0}; `--method packet` sends through AF_PACKET instead")]
    Live(NoLiveFrames),
    /// No right to a packet socket.
    #[error("sending needs CAP_NET_RAW: run with sudo, or give the program the capability")]
    NoRights,
    /// The file cannot be read, or not to its end; what came before was sent.
    #[error(transparent)]
    File(#[from] ReadError),
    /// The file holds something else than Ethernet frames.
    #[error("{file}: packets of link type {link_type} cannot be sent, only Ethernet (1)")]
    NotEthernet { file: String, link_type: u16 },
    /// The file holds no packet.
    #[error("{file}: there is no packet in it to be sent")]
    NoPackets { file: String },
    /// What was read from a pipe is gone.
    #[error("standard input cannot be sent again and again: save it to a file for --loop")]
    LoopOfStream,
    /// The thread cannot run there.
    #[error("CPU {cpu} cannot be used: /sys/devices/system/cpu/online lists those that can")]
    Cpu { cpu: usize },
    /// The kernel refused something that should work.
    #[error("{action}: {source}")]
    Kernel {
        action: &'static str,
        source: io::Error,
    },
    /// The sending thread failed; a defect.
    #[error("the sending thread ended unexpectedly: please report this")]
    Lost,
}

impl SendError {
    pub(super) fn kernel(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Kernel { action, source }
    }
}

/// Why live frames cannot be used here.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoLiveFrames {
    /// The process may not load such programs.
    #[error("live frames need {}: run with sudo, or give the program the capabilities", list(.missing))]
    NoRights { missing: Vec<Capability> },
    /// It may, but only inside a user namespace.
    #[error("live frames need eBPF programs, which no process inside a user namespace may load")]
    UserNamespace,
    /// The kernel does not know them.
    #[error("sending live frames {0}")]
    KernelTooOld(TooOld),
    /// The device's driver does not take them.
    #[error(
        "{name} takes no live frames ({}): {}",
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
    /// Frames are longer than a page has room for.
    #[error("{frame_bytes}-byte frames are too long for live frames, which hold {most_bytes}")]
    TooLong {
        frame_bytes: usize,
        most_bytes: usize,
    },
    /// Anything else.
    #[error("live frames: {action}: {source}")]
    Kernel {
        action: &'static str,
        source: io::Error,
    },
}

fn list(capabilities: &[Capability]) -> String {
    let names: Vec<_> = capabilities.iter().map(Capability::to_string).collect();
    names.join(", ")
}

/// `ENXIO` and the like, where they matter here.
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
