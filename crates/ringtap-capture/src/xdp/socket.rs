// SPDX-License-Identifier: MIT OR Apache-2.0
//! AF_XDP sockets: one for each receive queue, all on one UMEM, which is the pool.
//!
//! Invariants
//! - The first socket registers the pool; the others share it, each with rings of its own.
//! - Every fall-back becomes a note; nothing falls back silently.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringtap_pool::view::Pool;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags as Flags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with, sockopt,
};

use super::options::STAMP_ROOM;
use super::ring::{Fill, Received};

/// How long a queue may be held by a socket that is about to go: the kernel ends one later than
/// its process.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(20);
/// The kernel wants this ring, too; nothing is sent here.
const COMPLETION_ENTRIES: u32 = 64;

/// One queue's socket.
pub(super) struct XskSocket(OwnedFd);

/// A socket that was bound, with its rings.
pub(super) struct Bound {
    pub(super) socket: XskSocket,
    pub(super) received: Received,
    pub(super) fill: Fill,
}

/// What all sockets of a source have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) interface: u32,
    pub(super) cell_size: u32,
    /// Places in each ring: a power of two.
    pub(super) entries: u32,
    /// Bind flags of the first socket; the others follow it.
    pub(super) flags: Flags,
}

impl XskSocket {
    fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        Ok(XskSocket(socket))
    }

    /// The kernel's counters since the socket was made.
    pub(super) fn statistics(&self) -> io::Result<XdpStatistics> {
        Ok(sockopt::xdp_statistics(&self.0)?)
    }

    /// Tells the kernel to look at the fill ring, and to poll the driver if it does so.
    pub(super) fn kick(&self) {
        // What it says (nothing there, the interface is down) is seen elsewhere.
        let _nothing = recv(&self.0, &mut [0_u8; 0], RecvFlags::DONTWAIT);
    }

    /// From now on a kick polls the driver, which else leaves its interrupts alone.
    pub(super) fn prefer_busy_poll(&self) -> io::Result<()> {
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

/// A socket on `queue` whose UMEM is `pool`.
///
/// # Errors
///
/// The kernel's. `EBUSY` if the queue is still held after [`PATIENCE`].
pub(super) fn first(wanted: &Wanted, queue: u16, pool: &Pool) -> io::Result<Bound> {
    patiently(|| {
        let socket = XskSocket::open()?;
        let region = pool.region();
        let length = u64::try_from(region.bytes()).map_err(io::Error::other)?;
        let address = region.address().addr().get();
        sockopt::set_xdp_umem_reg(
            &socket,
            XdpUmemReg {
                addr: u64::try_from(address).map_err(io::Error::other)?,
                len: length,
                chunk_size: wanted.cell_size,
                headroom: STAMP_ROOM,
                flags: XdpUmemRegFlags::empty(),
                tx_metadata_len: 0,
            },
        )?;
        let bound = with_rings(socket, wanted.entries)?;
        let address = SocketAddrXdp::new(wanted.flags, wanted.interface, queue.into());
        bind(&bound.socket, &address)?;
        Ok(bound)
    })
}

/// A socket on `queue` that shares the UMEM of `first`.
///
/// # Errors
///
/// As for [`first`].
pub(super) fn another(wanted: &Wanted, queue: u16, first: &XskSocket) -> io::Result<Bound> {
    patiently(|| {
        let bound = with_rings(XskSocket::open()?, wanted.entries)?;
        let address = SocketAddrXdpWithSharedUmem {
            addr: SocketAddrXdp::new(Flags::XDP_SHARED_UMEM, wanted.interface, queue.into()),
            shared_umem_fd: first.as_fd(),
        };
        bind(&bound.socket, &address)?;
        Ok(bound)
    })
}

fn with_rings(socket: XskSocket, entries: u32) -> io::Result<Bound> {
    sockopt::set_xdp_umem_fill_ring_size(&socket, entries)?;
    sockopt::set_xdp_umem_completion_ring_size(&socket, COMPLETION_ENTRIES)?;
    sockopt::set_xdp_rx_ring_size(&socket, entries)?;
    let places = sockopt::xdp_mmap_offsets(&socket)?;
    Ok(Bound {
        received: Received::map(&socket, XDP_PGOFF_RX_RING, &places.rx, entries)?,
        fill: Fill::map(&socket, XDP_UMEM_PGOFF_FILL_RING, &places.fr, entries)?,
        socket,
    })
}

/// Tries again while the queue is held.
fn patiently<T>(attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < PATIENCE =>
            {
                sleep(NAP);
            }
            done => return done,
        }
    }
}
