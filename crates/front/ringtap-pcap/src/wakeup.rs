// SPDX-License-Identifier: MIT OR Apache-2.0
//! Eventfd of a handle that ends a wait in another thread, or in this one from a signal handler.
//!
//! Invariants
//! - [`Wakeup::signal`] is safe in a signal handler: no lock, no allocation, `errno` unchanged.
//! - The descriptor is closed only while no thread is between finding and writing it, or not at all.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::SeqCst};

use rustix::event::{EventfdFlags, eventfd};

/// No descriptor.
const NONE: i32 = -1;
/// Longest wait for other threads in [`Wakeup::signal`], in turns of the processor. A handler that left
/// that function by a jump never ends it: its descriptor stays open.
const MAX_TURNS: u32 = 1000;

pub(crate) struct Wakeup {
    fd: AtomicI32,
    /// Threads that use the descriptor.
    users: AtomicU32,
}

impl Wakeup {
    pub(crate) const fn new() -> Self {
        Wakeup {
            fd: AtomicI32::new(NONE),
            users: AtomicU32::new(0),
        }
    }

    /// Creates the descriptor; replaces one that another process shares.
    pub(crate) fn open(&self) -> io::Result<()> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let made = eventfd(0, flags)?;
        self.replace(made.into_raw_fd());
        Ok(())
    }

    pub(crate) fn close(&self) {
        self.replace(NONE);
    }

    fn replace(&self, new: i32) {
        let old = self.fd.swap(new, SeqCst);
        let mut turns = 0;
        while self.users.load(SeqCst) != 0 && turns < MAX_TURNS {
            std::thread::yield_now();
            turns += 1;
        }
        if old != NONE && turns < MAX_TURNS {
            // SAFETY: made by `open`, and taken out by this thread alone.
            drop(unsafe { OwnedFd::from_raw_fd(old) });
        }
    }

    /// Ends a wait that listens to [`Wakeup::with`]'s descriptor, now or later.
    pub(crate) fn signal(&self) {
        let _full = self.with(|fd| rustix::io::write(fd, &1_u64.to_ne_bytes()));
    }

    /// Takes the signals back.
    pub(crate) fn clear(&self) {
        // Fails if `signal` has not written yet; one later wait then ends early.
        let _none = self.with(|fd| rustix::io::read(fd, &mut [0; 8]));
    }

    /// Runs `work` with the descriptor, if there is one.
    pub(crate) fn with<T>(&self, work: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        self.users.fetch_add(1, SeqCst);
        let fd = self.fd.load(SeqCst);
        // SAFETY: open while `users` counts this thread.
        let done = (fd != NONE).then(|| work(unsafe { BorrowedFd::borrow_raw(fd) }));
        self.users.fetch_sub(1, SeqCst);
        done
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, AsRawFd as _};

    use super::*;

    #[test]
    fn a_signal_is_kept_until_it_is_cleared_and_a_closed_wakeup_takes_none() {
        let wakeup = Wakeup::new();
        wakeup.signal();
        wakeup.open().unwrap();
        let is_readable = || {
            wakeup.with(|fd| {
                let now = Some(std::time::Duration::ZERO);
                ringtap_ipc::event::sleep_until_readable(&[fd.as_fd()], now).unwrap()
            })
        };
        assert_eq!(is_readable(), Some(false));
        wakeup.signal();
        assert_eq!(is_readable(), Some(true));
        wakeup.clear();
        assert_eq!(is_readable(), Some(false));
        wakeup.close();
        assert_eq!(wakeup.with(|fd| fd.as_raw_fd()), None);
    }
}
