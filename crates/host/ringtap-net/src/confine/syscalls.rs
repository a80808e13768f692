// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of confined and of sandboxed processes; others fail with EPERM.
//!
//! A capture has a list of forbidden calls: an allowed list breaks with every other version of the C library, and
//! protects little more while a hub may load BPF programs. A process that runs foreign code has a list of allowed
//! calls ([`computation`]).

mod changes;
mod computation;

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::{ConfineError, refused};

/// EPERM on all architectures of Linux.
const REFUSAL: SeccompAction = SeccompAction::Errno(1);
/// ENOSYS on all architectures of Linux.
const UNKNOWN: SeccompAction = SeccompAction::Errno(38);

/// For each call, conditions of which one must hold; none: any arguments.
type CallRules = BTreeMap<libc::c_long, Vec<SeccompRule>>;

/// A call to which a rule applies if an argument, of which the kernel reads 32 bits, compares like this.
type LimitedCall = (libc::c_long, u8, SeccompCmpOp, u64);

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
    let rules = FORBIDDEN.iter().map(|call| (*call, Vec::new()));
    install(rules.collect(), SeccompAction::Allow, REFUSAL)
}

/// Forbids every thread of this process to change something outside of the process.
pub(super) fn forbid_changes() -> Result<(), ConfineError> {
    hide_clone3()?;
    let calls = [changes::CALLS, changes::OLDER].concat();
    let mut rules: CallRules = calls.into_iter().map(|call| (call, Vec::new())).collect();
    limit(&mut rules, changes::limited())?;
    install(rules, SeccompAction::Allow, REFUSAL)
}

/// Lets the C library call `clone`: the flags of `clone3` are in memory, where no filter sees them.
fn hide_clone3() -> Result<(), ConfineError> {
    let clone3 = CallRules::from([(libc::SYS_clone3, Vec::new())]);
    install(clone3, SeccompAction::Allow, UNKNOWN)
}

/// Adds a rule for each of these calls.
fn limit(rules: &mut CallRules, calls: Vec<LimitedCall>) -> Result<(), ConfineError> {
    for (call, argument, comparison, value) in calls {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, comparison, value);
        let rule = condition
            .and_then(|condition| SeccompRule::new(vec![condition]))
            .map_err(refused("system calls"))?;
        rules.entry(call).or_default().push(rule);
    }
    Ok(())
}

/// Allows every thread of this process only the calls of a computation.
pub(super) fn allow_computation() -> Result<(), ConfineError> {
    hide_clone3()?;
    let free = [computation::FREE, computation::OLDER].concat();
    let mut rules: CallRules = free.into_iter().map(|call| (call, Vec::new())).collect();
    limit(&mut rules, computation::limited())?;
    // Both halves of the pointer to new limits: reading the own ones is free.
    let no_new = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)
        .and_then(|no_new| SeccompRule::new(vec![no_new]));
    let no_new = no_new.map_err(refused("system calls"))?;
    rules.insert(libc::SYS_prlimit64, vec![no_new]);
    install(rules, REFUSAL, SeccompAction::Allow)
}

/// Adds a filter to every thread of this process, with an action for calls that no rule matches and one for others.
fn install(
    rules: CallRules,
    unmatched: SeccompAction,
    matched: SeccompAction,
) -> Result<(), ConfineError> {
    let compile = || -> Result<BpfProgram, seccompiler::BackendError> {
        let machine = std::env::consts::ARCH.try_into()?;
        SeccompFilter::new(rules, unmatched, matched, machine)?.try_into()
    };
    let program = compile().map_err(refused("system calls"))?;
    seccompiler::apply_filter_all_threads(&program).map_err(refused("system calls"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls without those that occur before.
    fn unique(calls: &[libc::c_long]) -> Vec<libc::c_long> {
        let mut calls = calls.to_vec();
        calls.sort_unstable();
        calls.dedup();
        calls
    }

    #[test]
    fn no_call_is_forbidden_twice() {
        assert_eq!(unique(FORBIDDEN).len(), FORBIDDEN.len());
    }

    #[test]
    fn a_computation_may_call_nothing_that_a_capture_may_not_and_each_call_is_listed_once() {
        let free = [computation::FREE, computation::OLDER].concat();
        assert_eq!(unique(&free).len(), free.len());
        for (call, ..) in computation::limited() {
            assert!(!free.contains(&call), "{call} is free and limited");
        }
        assert!(free.iter().all(|call| !FORBIDDEN.contains(call)));
        let changes = [changes::CALLS, changes::OLDER].concat();
        assert_eq!(unique(&changes).len(), changes.len());
        assert!(changes.iter().all(|call| !free.contains(call)));
    }
}
