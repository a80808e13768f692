// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that no capture makes once its devices are open: they fail with EPERM.
//!
//! A list of forbidden calls, not of allowed ones: an allowed list breaks with every other version
//! of the C library, and protects little more while a hub may load BPF programs.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use super::{ConfineError, refused};

/// Starting programs, becoming other users, other processes' memory, mounts, kernel modules, clocks, keys, and parts of the
/// kernel with a large attack surface that captures do not use.
const FORBIDDEN: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_personality,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Forbids the calls in every thread of this process.
pub(super) fn forbid() -> Result<(), ConfineError> {
    let rules: BTreeMap<_, _> = FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    // EPERM on all architectures of Linux.
    let refusal = SeccompAction::Errno(1);
    let compile = || -> Result<BpfProgram, seccompiler::BackendError> {
        let machine: TargetArch = std::env::consts::ARCH.try_into()?;
        SeccompFilter::new(rules, SeccompAction::Allow, refusal, machine)?.try_into()
    };
    let program = compile().map_err(refused("system calls"))?;
    seccompiler::apply_filter_all_threads(&program).map_err(refused("system calls"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_forbidden_twice() {
        let mut calls = FORBIDDEN.to_vec();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls.len(), FORBIDDEN.len());
    }
}
