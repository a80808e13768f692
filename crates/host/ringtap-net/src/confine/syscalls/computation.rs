// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of a sandboxed process: memory, threads of its own, clocks, its descriptors, and files that it reads.
//!
//! Not listed, so refused: processes, programs, sockets, writing or removing files, other processes, users,
//! namespaces, devices, interrupts of other processors (`membarrier`), and everything that a later kernel adds.

use std::process;

use seccompiler::SeccompCmpOp::{Eq, MaskedEq};

use super::LimitedCall;

/// Calls with any arguments.
pub(super) const FREE: &[libc::c_long] = &[
    // Memory. Only the loader and compilers at run time make memory executable, and both are welcome.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    // Threads, scheduling and the end.
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Signals to itself.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time and random numbers.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_getrandom,
    // Descriptors that the process has.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwritev2,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_getdents64,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    // Names of files; Landlock restricts which of them open.
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    // Facts about the process and the machine.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    // The next one: see `limited`; another filter answers it.
    libc::SYS_clone3,
];

/// Calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
pub(super) const OLDER: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_lstat,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
pub(super) const OLDER: &[libc::c_long] = &[];

/// Flags of new namespaces; with `CLONE_THREAD` the kernel refuses most of them anyway.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;
/// Flags of a file that is written or made. `O_TMPFILE` has a bit of `O_DIRECTORY`.
const WRITES: libc::c_int = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_TRUNC
    | libc::O_APPEND
    | (libc::O_TMPFILE & !libc::O_DIRECTORY);
/// `fcntl` that changes nothing which other processes share, such as `O_NONBLOCK` of a terminal.
const FCNTL: [libc::c_int; 4] = [
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_DUPFD_CLOEXEC,
];
/// Questions about a descriptor. Others would, for instance, type into a terminal.
const IOCTL: [libc::Ioctl; 4] = [
    libc::TCGETS,
    libc::TIOCGWINSZ,
    libc::FIONREAD,
    libc::FIOCLEX,
];
/// `prctl` for names of threads.
const PRCTL: [libc::c_int; 2] = [libc::PR_SET_NAME, libc::PR_GET_NAME];

/// Calls with certain arguments.
pub(super) fn limited() -> Vec<LimitedCall> {
    let bits = |flags: libc::c_int| u64::from(flags.cast_unsigned());
    let thread = bits(libc::CLONE_THREAD);
    let own = u64::from(process::id());
    let mut calls = vec![
        // Threads, no processes.
        (
            libc::SYS_clone,
            0,
            MaskedEq(thread | bits(NAMESPACES)),
            thread,
        ),
        (libc::SYS_openat, 2, MaskedEq(bits(WRITES)), 0),
        // To end itself.
        (libc::SYS_kill, 0, Eq, own),
        (libc::SYS_tgkill, 0, Eq, own),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.push((libc::SYS_open, 1, MaskedEq(bits(WRITES)), 0));
    calls.extend(FCNTL.map(|command| (libc::SYS_fcntl, 1, Eq, bits(command))));
    calls.extend(IOCTL.map(|command| (libc::SYS_ioctl, 1, Eq, command & 0xffff_ffff)));
    calls.extend(PRCTL.map(|command| (libc::SYS_prctl, 0, Eq, bits(command))));
    calls
}
