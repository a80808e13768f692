// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process at the other end of a UNIX socket, as the kernel reports it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::sockopt::socket_peercred;

/// A process, as it was when it connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process id.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group and its supplementary groups.
    pub gids: Vec<u32>,
}

impl Peer {
    /// The process at the other end of `socket`.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let credentials = socket_peercred(&socket)?;
        let mut gids = vec![credentials.gid.as_raw()];
        gids.extend(supplementary(socket)?);
        Ok(Peer {
            pid: credentials.pid.as_raw_nonzero().get(),
            uid: credentials.uid.as_raw(),
            gids,
        })
    }

    /// The calling process.
    pub fn this_process() -> Self {
        Peer {
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            uid: rustix::process::geteuid().as_raw(),
            gids: vec![rustix::process::getegid().as_raw()],
        }
    }
}

fn supplementary(socket: impl AsFd) -> io::Result<Vec<u32>> {
    // The kernel's own limit is 65,536 groups (NGROUPS_MAX).
    let mut gids = vec![0_u32; 65_536];
    let size = size_of::<u32>();
    let mut bytes = u32::try_from(gids.len() * size).map_err(io::Error::other)?;
    // SAFETY: the buffer has the stated size and lives during the call.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            gids.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    gids.truncate(usize::try_from(bytes).map_err(io::Error::other)? / size);
    Ok(gids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{Listener, Socket};

    #[test]
    fn the_kernel_says_who_connected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.sock");
        let listener = Listener::bind(&path).unwrap();
        let _near = Socket::connect(&path).unwrap();
        let far = listener.accept().unwrap().unwrap();
        let (peer, us) = (Peer::of(&far).unwrap(), Peer::this_process());
        assert_eq!((peer.pid, peer.uid), (us.pid, us.uid));
        assert!(peer.gids.contains(&us.gids[0]));
    }
}
