// SPDX-License-Identifier: MIT OR Apache-2.0
//! AF_XDP sockets: one for each receive queue, all on one UMEM, which is the pool.
//!
//! Invariants
//! - The first socket registers the pool; the others share it, each with its own rings.
//! - Every fall-back becomes a note.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringtap_pool::memory::Region;
use ringtap_pool::writer::Cell;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags as Flags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with, sockopt,
};

use super::options::STAMP_ROOM;
use super::ring::{Fill, Received};

/// How long to retry a busy queue: the kernel closes a socket some time after its process ends.
pub(crate) const BUSY_LIMIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
/// The kernel requires a completion ring even without sending.
const COMPLETION_ENTRIES: u32 = 64;

/// One queue's socket.
pub(crate) struct XskSocket(OwnedFd);

/// A bound receive socket and its rings.
pub(crate) struct Bound {
    pub(crate) socket: XskSocket,
    pub(crate) received: Received,
    pub(crate) fill: Fill,
}

/// Memory for received packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketMemory {
    address: u64,
    bytes: u64,
}

impl SocketMemory {
    pub(crate) fn from_region(region: &Region) -> io::Result<Self> {
        let address = region.address().addr().get();
        Ok(SocketMemory {
            address: u64::try_from(address).map_err(io::Error::other)?,
            bytes: u64::try_from(region.bytes()).map_err(io::Error::other)?,
        })
    }
}

/// UMEM of a socket.
#[derive(Clone, Copy)]
pub(crate) enum Umem<'a> {
    /// The socket registers this memory.
    New(SocketMemory),
    /// The socket shares the memory of this socket.
    Of(&'a XskSocket),
}

/// Settings common to all sockets of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketSettings {
    pub(crate) interface: u32,
    pub(crate) cell: Cell,
    /// Entries in each ring: a power of two.
    pub(crate) entries: u32,
    /// Bind flags of the first socket; the others inherit them.
    pub(crate) flags: Flags,
}

impl XskSocket {
    fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        Ok(XskSocket(socket))
    }

    /// The kernel's counters since the socket was created.
    pub(crate) fn statistics(&self) -> io::Result<XdpStatistics> {
        Ok(sockopt::xdp_statistics(&self.0)?)
    }

    /// Number of packets that the socket received but dropped.
    pub(crate) fn lost(&self) -> io::Result<u64> {
        let now = self.statistics()?;
        Ok(now.rx_dropped + now.rx_ring_full.unwrap_or(0))
    }

    /// Makes the kernel read the fill ring, and poll the driver in busy-poll mode.
    pub(crate) fn kick(&self) {
        // Errors (no packet, interface down) are detected elsewhere.
        let _nothing = recv(&self.0, &mut [0_u8; 0], RecvFlags::DONTWAIT);
    }

    /// Makes each kick poll the driver, whose interrupts are then deferred.
    pub(crate) fn prefer_busy_poll(&self) -> io::Result<()> {
        const BUDGET: c_int = 64;
        const POLL_US: c_int = 20;
        for (option, value) in [
            (libc::SO_PREFER_BUSY_POLL, 1),
            (libc::SO_BUSY_POLL, POLL_US),
            (libc::SO_BUSY_POLL_BUDGET, BUDGET),
        ] {
            let pointer = (&raw const value).cast::<c_void>();
            let size = libc::socklen_t::try_from(size_of::<c_int>()).map_err(io::Error::other)?;
            let fd = self.0.as_raw_fd();
            // SAFETY: the options take an int, which lives until the call returns.
            if unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, pointer, size) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

impl AsFd for XskSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Opens a receive socket on `queue`.
///
/// # Errors
///
/// The kernel's. `EBUSY` if the queue is still held after [`BUSY_LIMIT`].
pub(crate) fn receiving(wanted: &SocketSettings, queue: u16, umem: Umem<'_>) -> io::Result<Bound> {
    retry_while_busy(|| {
        let socket = open(wanted, umem)?;
        let bound = with_rings(socket, wanted.entries, COMPLETION_ENTRIES)?;
        bind_to(&bound.socket, wanted, queue, umem)?;
        Ok(bound)
    })
}

fn open(wanted: &SocketSettings, umem: Umem<'_>) -> io::Result<XskSocket> {
    let socket = XskSocket::open()?;
    if let Umem::New(memory) = umem {
        sockopt::set_xdp_umem_reg(
            &socket,
            XdpUmemReg {
                addr: memory.address,
                len: memory.bytes,
                chunk_size: wanted.cell.size,
                headroom: STAMP_ROOM,
                flags: if wanted.cell.is_aligned() {
                    XdpUmemRegFlags::empty()
                } else {
                    XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG
                },
                tx_metadata_len: 0,
            },
        )?;
    }
    Ok(socket)
}

fn bind_to(
    socket: &XskSocket,
    wanted: &SocketSettings,
    queue: u16,
    umem: Umem<'_>,
) -> io::Result<()> {
    let address = |flags| SocketAddrXdp::new(flags, wanted.interface, queue.into());
    match umem {
        Umem::New(_) => bind(socket, &address(wanted.flags))?,
        Umem::Of(first) => bind(
            socket,
            &SocketAddrXdpWithSharedUmem {
                addr: address(Flags::XDP_SHARED_UMEM),
                shared_umem_fd: first.as_fd(),
            },
        )?,
    }
    Ok(())
}

fn with_rings(socket: XskSocket, entries: u32, completions: u32) -> io::Result<Bound> {
    sockopt::set_xdp_umem_fill_ring_size(&socket, entries)?;
    sockopt::set_xdp_umem_completion_ring_size(&socket, completions)?;
    sockopt::set_xdp_rx_ring_size(&socket, entries)?;
    let places = sockopt::xdp_mmap_offsets(&socket)?;
    Ok(Bound {
        received: Received::map(&socket, XDP_PGOFF_RX_RING, &places.rx, entries)?,
        fill: Fill::map(&socket, XDP_UMEM_PGOFF_FILL_RING, &places.fr, entries)?,
        socket,
    })
}

/// Retries while the queue is busy.
fn retry_while_busy<T>(attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < BUSY_LIMIT =>
            {
                sleep(PAUSE);
            }
            done => return done,
        }
    }
}
