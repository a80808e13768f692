// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that signals one reader of another user, so that the hub's thread need not.
//!
//! A signal takes as long as the reader likes: the kernel calls everybody that watches the doorbell, and
//! a reader can watch it many thousand times.
//!
//! Invariants
//! - The hub's thread stores a flag and wakes the thread; no lock and no call depends on the reader.
//! - The signals take at most a percentage of one processor's time; beyond it they come later.

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use std::thread::{Thread, park, park_timeout};
use std::time::{Duration, Instant};

use ringtap_ipc::time::thread_time;
use ringtap_pool::wake::Signal;

use crate::background;

/// Time of the signals' due work that a reader may be ahead of its percentage.
const BURST: Duration = Duration::from_millis(100);

/// Wakes the reader; the thread ends soon after this is dropped.
pub(crate) struct SignalThread {
    flags: Arc<SignalFlags>,
    thread: Thread,
}

#[derive(Default)]
struct SignalFlags {
    is_due: AtomicBool,
    stop: AtomicBool,
}

impl SignalThread {
    /// Starts the thread; signals through `doorbell` take at most `percent` of a processor's time.
    ///
    /// # Errors
    ///
    /// The system's, when no thread can start.
    pub(crate) fn start(doorbell: Arc<dyn Signal>, percent: NonZeroU32) -> io::Result<Self> {
        let flags = Arc::new(SignalFlags::default());
        let own = Arc::clone(&flags);
        let handle = background::spawn("doorbell", move || run(&own, &*doorbell, percent))?;
        Ok(SignalThread {
            flags,
            thread: handle.thread().clone(),
        })
    }
}

fn run(flags: &SignalFlags, doorbell: &dyn Signal, percent: NonZeroU32) {
    // When the work so far is due at the reader's percentage of the time.
    let mut due = Instant::now();
    while !flags.stop.load(Relaxed) {
        let now = Instant::now();
        due = due.max(now);
        let wait = (due - now).saturating_sub(BURST);
        if !wait.is_zero() {
            park_timeout(wait);
        } else if flags.is_due.swap(false, Acquire) {
            let before = thread_time();
            doorbell.signal();
            due += thread_time().saturating_sub(before) * 100 / percent.get();
        } else {
            park();
        }
    }
}

impl Signal for SignalThread {
    fn signal(&self) {
        self.flags.is_due.store(true, Release);
        self.thread.unpark();
    }
}

impl Drop for SignalThread {
    fn drop(&mut self) {
        self.flags.stop.store(true, Relaxed);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{self, Receiver, Sender};

    use ringtap_testkit::LIMIT;

    use super::*;

    /// A doorbell whose signals take until the test releases them.
    struct Blocking {
        begun: Sender<()>,
        release: Mutex<Receiver<()>>,
    }

    impl Signal for Blocking {
        fn signal(&self) {
            self.begun.send(()).unwrap();
            self.release.lock().unwrap().recv().unwrap();
        }
    }

    #[test]
    fn a_signal_that_takes_for_ever_holds_no_caller_up() {
        let ((begun, begins), (release, released)) = (mpsc::channel(), mpsc::channel());
        let release_lock = Mutex::new(released);
        let doorbell = Arc::new(Blocking {
            begun,
            release: release_lock,
        });
        let signal: Arc<dyn Signal> = doorbell.clone();
        let signals = SignalThread::start(signal, NonZeroU32::new(5).unwrap()).unwrap();
        for _ in 0..3 {
            signals.signal();
            begins.recv_timeout(LIMIT).unwrap();
            // Signals during a signal are one further signal.
            (0..1000).for_each(|_| signals.signal());
            release.send(()).unwrap();
            begins.recv_timeout(LIMIT).unwrap();
            release.send(()).unwrap();
        }
        drop(signals);
        let until = Instant::now() + LIMIT;
        while Arc::strong_count(&doorbell) > 1 {
            assert!(Instant::now() < until, "the thread does not end");
        }
        assert!(begins.try_recv().is_err());
    }

    /// A doorbell whose signals take this much of the processor's time.
    struct Slow {
        took: Duration,
        begun: Sender<Instant>,
    }

    impl Signal for Slow {
        fn signal(&self) {
            let _over = self.begun.send(Instant::now());
            let end = thread_time() + self.took;
            while thread_time() < end {}
        }
    }

    #[test]
    fn a_reader_whose_signals_take_long_waits_until_it_took_its_share_of_the_time() {
        let (begun, begins) = mpsc::channel();
        let took = Duration::from_millis(30);
        let doorbell = Arc::new(Slow { took, begun });
        let signals = SignalThread::start(doorbell, NonZeroU32::new(20).unwrap()).unwrap();
        let times = (0..3).map(|_| {
            signals.signal();
            begins.recv_timeout(LIMIT).unwrap()
        });
        let times: Vec<_> = times.collect();
        // Two signals are due 300 ms after the first began, and 100 ms are a burst.
        assert!(
            times[2] - times[0] >= Duration::from_millis(199),
            "{times:?}"
        );
    }
}
