// SPDX-License-Identifier: MIT OR Apache-2.0
//! Number of packets that an interface lost since a capture began.
//!
//! Invariants
//! - The number never decreases, also when a driver resets its counters.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use ringtap_ipc::mutex::lock;
use ringtap_net::interface::Interface;
use ringtap_net::netlink::Losses;
use ringtap_pool::counters::Dropped;
use ringtap_pool::source::LossUpdate;

use crate::CaptureError;

/// Counts the packets that an interface loses from now on.
pub struct NicLosses {
    losses: Losses,
    arriving: Growth,
    leaving: Growth,
    is_final: bool,
}

/// Growth of a counter that may restart at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Growth {
    last: u64,
    total: u64,
}

impl Growth {
    fn from(last: u64) -> Self {
        Growth { last, total: 0 }
    }

    fn add(&mut self, now: u64) {
        // After a restart, all that the counter has is new.
        let new = now.checked_sub(self.last).unwrap_or(now);
        self.total += new;
        self.last = now;
    }
}

impl NicLosses {
    /// Begins to count.
    pub fn for_interface(interface: &Interface) -> Result<Self, CaptureError> {
        let losses = open(interface)?;
        Ok(NicLosses {
            arriving: Growth::from(losses.now().unwrap_or(0)),
            leaving: Growth::from(losses.not_sent().unwrap_or(0)),
            losses,
            is_final: false,
        })
    }

    /// Continues with another interface.
    pub fn continue_with(&mut self, interface: &Interface) -> Result<(), CaptureError> {
        self.losses = open(interface)?;
        self.arriving.last = self.losses.now().unwrap_or(0);
        self.leaving.last = self.losses.not_sent().unwrap_or(0);
        Ok(())
    }

    /// Packets lost on arrival, as last reported by the interface.
    pub fn lost(&mut self) -> u64 {
        if !self.is_final
            && let Some(now) = self.losses.now()
        {
            self.arriving.add(now);
        }
        self.arriving.total
    }

    /// Reads the losses on arrival for the last time.
    pub fn finish(&mut self) {
        self.lost();
        self.is_final = true;
    }

    /// Packets that the interface dropped instead of sending them, as last reported.
    pub fn not_sent(&mut self) -> u64 {
        if let Some(now) = self.losses.not_sent() {
            self.leaving.add(now);
        }
        self.leaving.total
    }

    /// The interface's own number of received packets.
    #[must_use]
    pub fn received(&self) -> Option<u64> {
        self.losses.received()
    }
}

/// Losses of an interface that several threads use; clones are the same losses.
#[derive(Clone)]
pub struct SharedLosses {
    nic: Arc<Mutex<NicLosses>>,
    known: Arc<AtomicU64>,
}

impl SharedLosses {
    /// Begins to count.
    ///
    /// # Errors
    ///
    /// [`CaptureError::System`]
    pub fn for_interface(interface: &Interface) -> Result<Self, CaptureError> {
        Ok(SharedLosses {
            nic: Arc::new(Mutex::new(NicLosses::for_interface(interface)?)),
            known: Arc::default(),
        })
    }

    /// The losses, for one thread; while another thread asks the interface, this waits.
    pub fn lock(&self) -> MutexGuard<'_, NicLosses> {
        lock(&self.nic)
    }

    /// Packets lost on arrival at the last update. Never waits.
    #[must_use]
    pub fn known(&self) -> u64 {
        self.known.load(Relaxed)
    }

    /// The losses at the last update, as a source counts them. Never waits.
    #[must_use]
    pub fn dropped(&self) -> Dropped {
        Dropped {
            nic: self.known(),
            ..Dropped::default()
        }
    }

    /// Asks the interface for the packets lost on arrival.
    #[must_use]
    pub fn update(&self) -> LossUpdate {
        let losses = self.clone();
        Box::new(move || {
            let mut nic = losses.lock();
            losses.known.store(nic.lost(), Relaxed);
        })
    }

    /// Reads the losses on arrival for the last time.
    pub fn finish(&self) {
        let mut nic = self.lock();
        nic.finish();
        self.known.store(nic.lost(), Relaxed);
    }
}

fn open(interface: &Interface) -> Result<Losses, CaptureError> {
    let action = "opening a netlink socket";
    Losses::for_interface(interface.index).map_err(CaptureError::system(&interface.name, action))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_restarts_at_0_loses_nothing_that_was_counted() {
        let mut growth = Growth::from(5);
        growth.add(7);
        growth.add(3);
        growth.add(4);
        assert_eq!(growth.total, 2 + 3 + 1);
    }
}
