// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packet socket: options that have no safe binding.
#![allow(unsafe_code, reason = "setsockopt, getsockopt and bind of AF_PACKET")]

use std::{
    ffi::{c_int, c_void},
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use ringtap_pool::number::to_u16;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use rustix::thread::CapabilitySet;

use ringtap_filter::Instruction;
use ringtap_net::rights::{Purpose, RightsError};

use super::options::RingLayout;
use crate::CaptureError;

/// Milliseconds after which the kernel hands over a partly filled block: the minimum.
const HAND_OVER_MS: u32 = 1;
/// The kernel only checks this value; packets of this ring have variable length.
const FRAME_BYTES: u32 = 2048;

/// A packet socket; it receives nothing before `bind`.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

/// The kernel's counters since the last reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SocketStatistics {
    /// Packets that passed the socket's filter, including dropped ones.
    pub(super) packets: u32,
    /// Packets dropped because the ring was full.
    pub(super) drops: u32,
}

impl PacketSocket {
    pub(super) fn open() -> Result<Self, CaptureError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None) {
            Ok(socket) => Ok(Self(socket)),
            Err(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => {
                Err(CaptureError::Rights(RightsError::Missing {
                    purpose: Purpose::Packet,
                    missing: CapabilitySet::NET_RAW,
                }))
            }
            Err(error) => Err(system("opening a packet socket")(error.into())),
        }
    }

    /// Replaces the socket's filter atomically.
    pub(super) fn attach(&self, program: &[Instruction]) -> Result<(), CaptureError> {
        let program = libc::sock_fprog {
            len: to_u16(program.len()),
            // The kernel only reads; `Instruction` is laid out as `sock_filter`.
            filter: program.as_ptr().cast_mut().cast(),
        };
        // SAFETY: an integer and a pointer; the instructions live until the call returns.
        let outcome = unsafe { self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) };
        outcome.map_err(system("setting the socket's filter"))
    }

    /// Gives packets the NIC's time stamp where they have one.
    pub(super) fn use_nic_stamps(&self) -> Result<(), CaptureError> {
        let source = libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        // SAFETY: PACKET_TIMESTAMP takes an int.
        let outcome = unsafe { self.set(libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &source) };
        outcome.map_err(system("asking for the NIC's time stamps"))
    }

    /// Creates the ring; `Ring::map` maps it.
    pub(super) fn make_ring(&self, layout: &RingLayout) -> io::Result<()> {
        let version: c_int = 2;
        // SAFETY: PACKET_VERSION takes an int.
        unsafe { self.set(libc::SOL_PACKET, libc::PACKET_VERSION, &version) }?;
        let request = libc::tpacket_req3 {
            tp_block_size: layout.block_bytes,
            tp_block_nr: layout.block_count,
            tp_frame_size: FRAME_BYTES,
            tp_frame_nr: layout.block_bytes / FRAME_BYTES * layout.block_count,
            tp_retire_blk_tov: HAND_OVER_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        // SAFETY: PACKET_RX_RING takes this structure once the version is 3.
        unsafe { self.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request) }
    }

    /// Starts receiving from `interface`.
    pub(super) fn bind(&self, interface: u32) -> Result<(), CaptureError> {
        const ALL_PROTOCOLS: u16 = 0x0003;
        let address = libc::sockaddr_ll {
            sll_family: u16::try_from(libc::AF_PACKET).unwrap_or_default(),
            sll_protocol: ALL_PROTOCOLS.to_be(),
            sll_ifindex: i32::try_from(interface).unwrap_or(i32::MAX),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let size = socket_size::<libc::sockaddr_ll>();
        let pointer = (&raw const address).cast();
        // SAFETY: the address lives until the call returns, and its size is given with it.
        match unsafe { libc::bind(self.0.as_raw_fd(), pointer, size) } {
            0 => Ok(()),
            _ => Err(system("binding to the interface")(
                io::Error::last_os_error(),
            )),
        }
    }

    /// Reads the counters; the kernel resets them to 0.
    pub(super) fn statistics(&self) -> io::Result<SocketStatistics> {
        let mut counts = MaybeUninit::<libc::tpacket_stats_v3>::zeroed();
        let mut size = socket_size::<libc::tpacket_stats_v3>();
        // SAFETY: the kernel writes at most `size` bytes to a structure that lives long enough.
        let outcome = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                counts.as_mut_ptr().cast(),
                &raw mut size,
            )
        };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: three integers, all zeroed before the kernel filled them.
        let counts = unsafe { counts.assume_init() };
        Ok(SocketStatistics {
            packets: counts.tp_packets,
            drops: counts.tp_drops,
        })
    }

    /// Takes the error that made the socket readable.
    pub(super) fn take_error(&self) -> io::Result<()> {
        sockopt::socket_error(&self.0)?.map_err(io::Error::from)
    }

    /// # Safety
    ///
    /// `T` is what the kernel reads for this option.
    unsafe fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        let pointer = std::ptr::from_ref(value).cast::<c_void>();
        let size = socket_size::<T>();
        // SAFETY: the value lives until the call returns, and its size is given with it.
        match unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, pointer, size) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn socket_size<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(libc::socklen_t::MAX)
}

/// Converts the error of a failed system call.
pub(super) fn system(action: &'static str) -> impl FnOnce(io::Error) -> CaptureError {
    CaptureError::system("packet socket", action)
}
