// SPDX-License-Identifier: MIT OR Apache-2.0
//! Private delivery: a thread copies what passes a reader's filter into a pool of its own.
//!
//! The reader sees that pool and nothing of the source's: not a byte that is not its own.
//!
//! Invariants
//! - Each packet that the subscription gets is copied, or counted as filtered, or counted as lost.

mod books;
mod output;
mod worker;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ringtap_filter::Place;
use ringtap_ipc::doorbell::Doorbell;
use ringtap_ipc::protocol::{ReaderStatus, SourceSnapshot};
use ringtap_ipc::subscription::{Subscription, Wanted};

use crate::group::Group;
use books::Books;
use worker::Worker;

/// What the relay's thread and the hub share.
struct Common {
    books: Mutex<Books>,
    /// New filters, one an endpoint, until the thread has taken them.
    wanted: Mutex<Option<Vec<Wanted>>>,
    stop: AtomicBool,
}

/// A running relay; it ends when this is dropped.
pub(crate) struct Relay {
    common: Arc<Common>,
    doorbell: Arc<dyn Doorbell>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts copying from `inner`; gives the subscription at the private pools.
    ///
    /// `doorbell` is the hub's own of the inner subscription: it wakes the relay.
    pub(crate) fn start(
        inner: Subscription,
        doorbell: Arc<dyn Doorbell>,
        group: &Group,
    ) -> io::Result<(Self, Subscription)> {
        let (worker, private, books) = Worker::new(inner, group)?;
        let common = Arc::new(Common {
            books: Mutex::new(books),
            wanted: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let shared = Arc::clone(&common);
        let thread = std::thread::Builder::new()
            .name("relay".into())
            .spawn(move || worker.run(&shared))?;
        let relay = Relay {
            common,
            doorbell,
            thread: Some(thread),
        };
        Ok((relay, private))
    }

    /// Copies by these filters from now on.
    pub(crate) fn set_wanted(&self, wanted: Vec<Wanted>) {
        *lock(&self.common.wanted) = Some(wanted);
        self.doorbell.signal();
    }

    /// Packets that did not fit into the reader's pool.
    pub(crate) fn lost(&self) -> u64 {
        lock(&self.common.books).lost()
    }

    /// The account of endpoint `at` as the reader of the private pool is to see it.
    pub(crate) fn seen_from_outside(&self, at: usize, inner: SourceSnapshot) -> SourceSnapshot {
        lock(&self.common.books).seen_from_outside(at, inner)
    }

    /// What the reader says of itself.
    pub(crate) fn fill(&self, status: &mut ReaderStatus) {
        lock(&self.common.books).fill(status);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.common.stop.store(true, Relaxed);
        self.doorbell.signal();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// What a reader behind a relay is told of its filter: all that it gets passed it.
pub(crate) fn judged(wanted: &Wanted) -> Wanted {
    Wanted {
        mask: u64::MAX,
        group: 0,
        place: Place::Source,
        filter: wanted.filter.clone(),
        from: vec![0; wanted.from.len()],
    }
}

/// Locks what no thread leaves half changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
