// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures that `border.c` and this library's Rust share.
//!
//! Invariants
//! - Both languages have the same layout: `border.c` and this file assert the sizes.
//! - Only the thread whose call is marked in `thread` changes a window, except for `interrupted`.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::time::Instant;

use ringtap_client::{CursorPacket, OutsideWait};
use ringtap_pool::number::to_u32;

use crate::abi::{PacketHeader, Pcap};

/// Begins every handle of this library.
pub(crate) const MARK: u64 = u64::from_ne_bytes(*b"Ringtap\xff");

/// Packets that a step found and that `border.c` gives to the program, one by one.
#[repr(C)]
pub(crate) struct PacketWindow {
    packets: AtomicPtr<CursorPacket>,
    /// Memory for the packet that the program reads; NULL: packets are read in place.
    copy: AtomicPtr<u8>,
    /// Packets that the program has read through this handle.
    delivered: AtomicU64,
    /// A step must run before the next packet.
    interrupted: AtomicU32,
    /// Packets of the window that the program has read.
    at: AtomicU32,
    end: AtomicU32,
    snap_bytes: AtomicU32,
    nanoseconds: AtomicU32,
    /// A call that reads one packet ends with a step.
    must_finish: AtomicU32,
    header: UnsafeCell<PacketHeader>,
}

// SAFETY: only `border.c` uses the header, for the thread that reads.
unsafe impl Sync for PacketWindow {}

impl PacketWindow {
    fn new() -> Self {
        PacketWindow {
            packets: AtomicPtr::default(),
            copy: AtomicPtr::default(),
            delivered: AtomicU64::new(0),
            interrupted: AtomicU32::new(0),
            at: AtomicU32::new(0),
            end: AtomicU32::new(0),
            snap_bytes: AtomicU32::new(0),
            nanoseconds: AtomicU32::new(0),
            must_finish: AtomicU32::new(0),
            header: UnsafeCell::new(PacketHeader::default()),
        }
    }

    /// Prepares the window for a capture.
    pub(crate) fn begin(&self, copy: *mut u8, snap_bytes: u32, nanoseconds: bool) {
        self.show(&[], false);
        self.copy.store(copy, Relaxed);
        self.snap_bytes.store(snap_bytes, Relaxed);
        self.nanoseconds.store(nanoseconds.into(), Relaxed);
        self.delivered.store(0, Relaxed);
    }

    /// Shows these packets to `border.c`. They must stay where they are until the next call.
    pub(crate) fn show(&self, packets: &[CursorPacket], must_finish: bool) {
        self.at.store(0, Relaxed);
        self.end.store(to_u32(packets.len()), Relaxed);
        self.packets.store(packets.as_ptr().cast_mut(), Relaxed);
        self.must_finish.store(must_finish.into(), Relaxed);
    }

    /// Number of packets that were read since [`PacketWindow::show`].
    pub(crate) fn taken(&self) -> u32 {
        self.at.load(Relaxed)
    }

    /// Number of packets that were read through this handle.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Relaxed)
    }

    /// Makes a step run before the next packet.
    pub(crate) fn interrupt(&self) {
        // Pairs with the swap in `clear_interrupt`: the step sees what was changed before.
        self.interrupted.store(1, Release);
    }

    /// Notes that a step runs.
    pub(crate) fn clear_interrupt(&self) {
        if self.interrupted.load(Relaxed) != 0 {
            self.interrupted.swap(0, AcqRel);
        }
    }
}

/// The part of a handle that `border.c` knows.
#[repr(C)]
pub(crate) struct SharedState {
    pub(crate) mark: AtomicU64,
    /// The real library's handle, if that library opened the device.
    pub(crate) real: AtomicPtr<Pcap>,
    /// The thread whose call reads, as `pthread_self` names it; 0: none.
    pub(crate) thread: AtomicUsize,
    /// Address of that thread's outermost call.
    pub(crate) frame: AtomicUsize,
    /// The handle is activated and open.
    pub(crate) active: AtomicU32,
    /// The handle was closed.
    pub(crate) closed: AtomicU32,
    /// Number of the handle among those that had this place.
    pub(crate) serial: AtomicU64,
    pub(crate) window: PacketWindow,
}

impl SharedState {
    pub(crate) fn new() -> Self {
        SharedState {
            mark: AtomicU64::new(MARK),
            real: AtomicPtr::default(),
            thread: AtomicUsize::new(0),
            frame: AtomicUsize::new(0),
            active: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            serial: AtomicU64::new(0),
            window: PacketWindow::new(),
        }
    }
}

/// Limits to the wait of a read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitLimits {
    pub(crate) deadline: Option<Instant>,
    pub(crate) not_at_all: bool,
}

/// A call that reads packets, on the stack of its thread. Nothing in it needs to be dropped.
#[repr(C)]
pub(crate) struct Call {
    /// The handle; NULL: none of this library.
    pub(crate) shared: *const c_void,
    real: *mut Pcap,
    /// Of the handle for which the call began.
    pub(crate) serial: u64,
    /// Packets that the program has read in this call.
    pub(crate) count: u64,
    /// Most packets.
    pub(crate) most: u64,
    has_limits: u64,
    /// Limits to the wait; computed when no packet waits: most calls find one.
    limits: MaybeUninit<WaitLimits>,
    at_most: libc::timespec,
    kind: i32,
    pub(crate) status: c_int,
    fd: c_int,
    has_limit: i32,
}

impl Call {
    /// The limits to the wait; the first time, `compute` makes them.
    pub(crate) fn limits(&mut self, compute: impl FnOnce(&Self) -> WaitLimits) -> WaitLimits {
        if self.has_limits == 0 {
            self.limits.write(compute(self));
            self.has_limits = 1;
        }
        // SAFETY: `border.c` begins with `has_limits` 0, so they were written above.
        unsafe { self.limits.assume_init() }
    }

    /// Whether the call ends with the waiting packets: all but `pcap_loop`.
    pub(crate) fn ends_with_batch(&self) -> bool {
        self.kind != 0
    }

    /// Whether the call asks for one packet: `pcap_next` or `pcap_next_ex`.
    pub(crate) fn is_for_one(&self) -> bool {
        self.kind == 2
    }

    /// Tells `border.c` how to wait.
    pub(crate) fn wait(&mut self, wait: OutsideWait) {
        let zero = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        self.fd = wait.fd.unwrap_or(-1);
        self.has_limit = wait.at_most.is_some().into();
        self.at_most = wait.at_most.map_or(zero, |time| libc::timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
    }
}

const _: () = assert!(size_of::<CursorPacket>() == 56);
const _: () = assert!(size_of::<PacketWindow>() == 72);
const _: () = assert!(size_of::<SharedState>() == 120);
const _: () = assert!(size_of::<Call>() == 104);

/// Next action of `border.c` after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum AfterStep {
    /// Gives packets of the window.
    Packets = 0,
    /// Waits, then runs the next step.
    Wait = 1,
    /// Returns the call's status.
    Done = 2,
}

/// The calling thread, as `border.c` names it.
pub(crate) fn this_thread() -> usize {
    // SAFETY: takes no arguments and always succeeds.
    let thread = unsafe { libc::pthread_self() };
    usize::try_from(thread).unwrap_or(usize::MAX)
}
