// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a ring's calls share while another thread, or the code that a signal handler interrupted, receives.
//!
//! Invariants
//! - No thread holds a ring's lock while it waits for packets, asks the hub, or runs the program's function.
//! - A signal handler takes no lock and allocates nothing if it interrupted a call of this library.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::abi::RingStatistics;

/// A ring's values that are read and written without its lock.
#[derive(Debug, Default)]
pub(crate) struct RingSignals {
    /// Ends waits and `pfring_loop`; a signal handler may set it.
    pub(crate) stops: AtomicBool,
    /// The counters as of the last time that they were read.
    received: AtomicU64,
    dropped: AtomicU64,
    shunted: AtomicU64,
    /// A signal handler got old counters: the next call that receives reads new ones.
    is_stale: AtomicBool,
}

impl RingSignals {
    /// The counters as they were read last.
    pub(crate) fn known(&self) -> RingStatistics {
        RingStatistics {
            recv: self.received.load(Relaxed),
            drop: self.dropped.load(Relaxed),
            shunt: self.shunted.load(Relaxed),
        }
    }

    /// The counters for a signal handler.
    pub(crate) fn known_in_handler(&self) -> RingStatistics {
        self.is_stale.store(true, Relaxed);
        self.known()
    }

    /// Whether a signal handler got old counters since the last call.
    pub(crate) fn take_stale(&self) -> bool {
        self.is_stale.load(Relaxed) && self.is_stale.swap(false, Relaxed)
    }

    pub(crate) fn set_received(&self, packets: u64) {
        self.received.store(packets, Relaxed);
    }

    pub(crate) fn set_lost(&self, dropped: u64, shunted: u64) {
        self.dropped.store(dropped, Relaxed);
        self.shunted.store(shunted, Relaxed);
    }
}

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as inside a call, until it is dropped.
#[derive(Debug)]
pub(crate) struct RingCall(());

impl RingCall {
    /// `None` in a signal handler that interrupted a call of this library on this thread.
    pub(crate) fn enter() -> Option<Self> {
        let was_inside = IS_INSIDE.try_with(|inside| inside.replace(true));
        (was_inside == Ok(false)).then(|| RingCall(()))
    }
}

impl Drop for RingCall {
    fn drop(&mut self) {
        let _thread_ends = IS_INSIDE.try_with(|inside| inside.set(false));
    }
}

/// No signal reaches this thread, and threads that it starts, until this is dropped.
///
/// A capture in this process has threads. A handler of the program that ran on one could wait for that thread itself.
pub(crate) struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    pub(crate) fn begin() -> Self {
        // SAFETY: sets of signals are numbers.
        let (mut all, mut before) =
            unsafe { std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>() };
        // SAFETY: a valid set.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: two valid sets.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        SignalsBlocked { before }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: a valid set, and no place for the one before.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::{RingCall, RingSignals};

    #[test]
    fn a_call_that_interrupts_another_of_its_thread_is_told() {
        let first = RingCall::enter();
        assert!(first.is_some());
        for _ in 0..2 {
            assert!(RingCall::enter().is_none());
        }
        let other = std::thread::spawn(|| RingCall::enter().is_some());
        assert!(other.join().expect("no panic"));
        drop(first);
        assert!(RingCall::enter().is_some());
    }

    #[test]
    fn old_counters_are_read_anew_once() {
        let signals = RingSignals::default();
        assert!(!signals.take_stale());
        signals.set_lost(3, 4);
        let known = signals.known_in_handler();
        assert_eq!((known.recv, known.drop, known.shunt), (0, 3, 4));
        assert!(signals.take_stale() && !signals.take_stale());
    }
}
