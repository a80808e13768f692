// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that change something outside of the process: files, the network, other processes.

use seccompiler::SeccompCmpOp::MaskedEq;

use super::LimitedCall;

/// Calls that are forbidden with any arguments. The arguments of `openat2` are in memory, where no filter sees them.
pub(super) const CALLS: &[libc::c_long] = &[
    libc::SYS_openat2,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_socket,
    libc::SYS_bpf,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
];

/// Calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
pub(super) const OLDER: &[libc::c_long] = &[
    libc::SYS_creat,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utimes,
    libc::SYS_fork,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const OLDER: &[libc::c_long] = &[];

/// Flags of a file that is written or made. `O_TMPFILE` has a bit of `O_DIRECTORY`.
const WRITES: [libc::c_int; 5] = [
    libc::O_WRONLY,
    libc::O_RDWR,
    libc::O_CREAT,
    libc::O_TRUNC,
    libc::O_TMPFILE & !libc::O_DIRECTORY,
];

/// Calls that are forbidden with certain arguments.
pub(super) fn limited() -> Vec<LimitedCall> {
    let bits = |flags: libc::c_int| u64::from(flags.cast_unsigned());
    let has = |flag: libc::c_int| (MaskedEq(bits(flag)), bits(flag));
    // A process that is no thread.
    let mut calls: Vec<LimitedCall> =
        vec![(libc::SYS_clone, 0, MaskedEq(bits(libc::CLONE_THREAD)), 0)];
    for (comparison, value) in WRITES.map(has) {
        #[cfg(target_arch = "x86_64")]
        calls.push((libc::SYS_open, 1, comparison.clone(), value));
        calls.push((libc::SYS_openat, 2, comparison, value));
    }
    calls
}
