// SPDX-License-Identifier: MIT OR Apache-2.0
//! A private network for this process: a network namespace without a name.
//!
//! Invariants
//! - Only the threads of the process keep the namespace: the kernel removes it when the process ends,
//!   also after a kill.
//! - The process enters before it starts a second thread, so that all its threads are inside.
#![allow(
    unsafe_code,
    reason = "unshare has no safe binding: it can also split descriptor tables"
)]

use std::{fs, io, path::Path};

use rustix::{
    io::Errno,
    process::{getegid, geteuid},
    thread::{CapabilitySet, UnshareFlags, unshare_unsafe},
};

use crate::rights::{Purpose, Rights};

/// Rights of the process in its private network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The same rights as before.
    AsBefore,
    /// All rights over this network, but no BPF: the process is in a user namespace of its own.
    UserNamespace,
}

/// Reason why the process cannot enter a private network.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateError {
    /// Other threads would stay outside.
    #[error(
        "a process with {threads} threads cannot enter a private network: enter it before threads start"
    )]
    Threads { threads: usize },
    /// The system refuses user namespaces, and the process lacks the rights to do without.
    #[error(
        "without root this needs a user namespace, and this system refuses one ({cause}{}): run \
         it with sudo, in a container with --privileged",
        why_refused(.cause)
    )]
    UserNamespace { cause: io::Error },
    /// The kernel refused a step.
    #[error("{action}: {cause}")]
    Kernel {
        action: &'static str,
        cause: io::Error,
    },
}

impl PrivateError {
    fn kernel(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Kernel { action, cause }
    }
}

/// Moves the process into a network namespace of its own with only `lo`, without IPv6.
///
/// A process without the rights of the tap source also enters a user namespace of its own.
///
/// # Errors
///
/// - [`PrivateError::UserNamespace`]: no rights, and no user namespaces for such processes.
/// - [`PrivateError::Threads`]: this process has more than one thread.
pub fn enter() -> Result<Standing, PrivateError> {
    let threads = fs::read_dir("/proc/self/task")
        .map_err(PrivateError::kernel("listing /proc/self/task"))?
        .count();
    if threads > 1 {
        return Err(PrivateError::Threads { threads });
    }
    let rights = Rights::current();
    let standing = match rights.require(Purpose::Tap) {
        Ok(()) if rights.has(CapabilitySet::SYS_ADMIN) => {
            unshare(UnshareFlags::NEWNET)
                .map_err(PrivateError::kernel("making a network namespace"))?;
            Standing::AsBefore
        }
        _ => {
            enter_user_namespace().map_err(|cause| PrivateError::UserNamespace { cause })?;
            Standing::UserNamespace
        }
    };
    silence_ipv6().map_err(PrivateError::kernel("switching IPv6 off in the namespace"))?;
    Ok(standing)
}

/// Users and groups keep their numbers, so that new files have the same owner as before.
fn enter_user_namespace() -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)?;
    // The kernel wants this before a process without rights maps a group.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: neither flag (NEWNET, NEWUSER) concerns descriptors or memory, here or later.
    unsafe { unshare_unsafe(flags) }.map_err(Errno::into)
}

/// Disables IPv6, so that new interfaces send nothing by themselves.
fn silence_ipv6() -> io::Result<()> {
    let folder = Path::new("/proc/sys/net/ipv6/conf");
    if !folder.exists() {
        return Ok(());
    }
    fs::write(folder.join("all/disable_ipv6"), "1")?;
    fs::write(folder.join("default/disable_ipv6"), "1")
}

/// The setting that forbids user namespaces, if known.
fn why_refused(cause: &io::Error) -> &'static str {
    if cause.raw_os_error() == Some(libc::ENOSPC) {
        return ", more than user.max_user_namespaces";
    }
    // Ubuntu, since 24.04.
    let switch = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
    match fs::read_to_string(switch) {
        Ok(text) if text.trim() == "1" => ", kernel.apparmor_restrict_unprivileged_userns = 1",
        _ => "",
    }
}
