// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process at the other end of a UNIX socket, as the kernel reports it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::process::Pid;
use rustix::thread::{CapabilitySet, capabilities};

/// From the kernel's `asm-generic/socket.h`.
const SO_PASSRIGHTS: libc::c_int = 83;
const C_INT_BYTES: libc::socklen_t = 4;
/// Setting of the kernel: `0` lets every process load BPF programs.
const UNPRIVILEGED_BPF: &str = "/proc/sys/kernel/unprivileged_bpf_disabled";

/// A process, as it was when it connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process id; 0 if the process is outside of the calling process's PID namespace.
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
    pub fn from_socket(socket: impl AsFd) -> io::Result<Self> {
        let credentials = credentials(&socket)?;
        let mut gids = vec![credentials.gid];
        gids.extend(supplementary(socket)?);
        Ok(Peer {
            pid: credentials.pid,
            uid: credentials.uid,
            gids,
        })
    }

    /// Why the process may load BPF programs, which write any BPF map whose descriptor the process has,
    /// a frozen map too; `None` if it may not.
    ///
    /// Looks at the process's first thread, now. A process can pass descriptors on: a user that can
    /// start another process with `CAP_BPF` is not found here.
    pub fn may_load_programs(&self) -> Option<&'static str> {
        let setting = fs::read_to_string(UNPRIVILEGED_BPF);
        let held = Pid::from_raw(self.pid).map(|pid| capabilities(Some(pid)));
        why_programs(
            setting.ok().as_deref().map(str::trim),
            held.and_then(Result::ok).map(|sets| sets.permitted),
        )
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

/// The type that the `SO_PEERCRED` of rustix returns has no room for the process id 0.
fn credentials(socket: impl AsFd) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut bytes =
        libc::socklen_t::try_from(size_of::<libc::ucred>()).map_err(io::Error::other)?;
    // SAFETY: the buffer has the stated size and lives during the call.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut bytes,
        )
    };
    match outcome {
        0 => Ok(credentials),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets the kernel refuse descriptors that the other end of a UNIX socket sends; also for connections
/// that a listening socket will accept. Returns whether the kernel does so (Linux 6.16 and later).
pub fn refuse_descriptors(socket: impl AsFd) -> bool {
    set_passes_descriptors(socket, 0)
}

/// Undoes [`refuse_descriptors`], as if the kernel could not refuse descriptors; for tests.
pub fn pass_descriptors(socket: impl AsFd) {
    set_passes_descriptors(socket, 1);
}

fn set_passes_descriptors(socket: impl AsFd, passes: libc::c_int) -> bool {
    // SAFETY: the value is a C int and lives during the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const passes).cast(),
            C_INT_BYTES,
        )
    };
    outcome == 0
}

/// Why a process with these capabilities may load programs; absent values are unknown.
fn why_programs(setting: Option<&str>, permitted: Option<CapabilitySet>) -> Option<&'static str> {
    match (setting, permitted) {
        (Some("1" | "2"), Some(held))
            if !held.intersects(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN) =>
        {
            None
        }
        (Some("1" | "2"), Some(_)) => Some("it has CAP_BPF or CAP_SYS_ADMIN"),
        (Some("1" | "2"), None) => Some("the hub cannot see its capabilities"),
        _ => Some("kernel.unprivileged_bpf_disabled is not 1 or 2"),
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
    fn programs_need_a_capability_or_a_kernel_that_lets_everybody() {
        let none = Some(CapabilitySet::empty());
        let other = Some(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW);
        for setting in ["1", "2"] {
            assert_eq!(why_programs(Some(setting), none), None);
            assert_eq!(why_programs(Some(setting), other), None);
            for held in [CapabilitySet::BPF, CapabilitySet::SYS_ADMIN] {
                assert!(why_programs(Some(setting), Some(held)).is_some());
            }
            assert!(why_programs(Some(setting), None).is_some());
        }
        assert!(why_programs(Some("0"), none).is_some());
        assert!(why_programs(None, none).is_some());
    }

    #[test]
    fn the_kernel_says_who_connected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.sock");
        let listener = Listener::bind(&path).unwrap();
        let _near = Socket::connect(&path).unwrap();
        let far = listener.accept().unwrap().unwrap();
        let (peer, us) = (Peer::from_socket(&far).unwrap(), Peer::this_process());
        assert_eq!((peer.pid, peer.uid), (us.pid, us.uid));
        assert!(peer.gids.contains(&us.gids[0]));
    }
}
