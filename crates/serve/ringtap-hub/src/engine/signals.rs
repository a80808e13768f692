// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals to sleeping readers, within a share of the hub thread's time for each user.
//!
//! A signal takes as long as the reader likes: the kernel calls everybody that watches the doorbell, and
//! a reader can watch it many thousand times.
//!
//! Invariants
//! - A user that has taken its share is signalled later. Time in which the thread does not run does not count.

use std::time::{Duration, Instant};

use ringtap_ipc::doorbell::HubDoorbell;
use ringtap_ipc::time::thread_time;
use ringtap_pool::wake::Signal as _;

use crate::limits::Limits;
use crate::rate::Rates;

pub(crate) struct Signals(Rates);

impl Signals {
    pub(crate) fn new(limits: &Limits) -> Self {
        Signals(Rates::of_time(limits.wake_percent_per_user))
    }

    /// Signals the doorbell of a reader of this user (absent: without a limit). Returns the time until the
    /// next attempt if the user has taken its share.
    pub(super) fn signal(
        &mut self,
        doorbell: &HubDoorbell,
        user: Option<u32>,
        now: Instant,
    ) -> Option<Duration> {
        let Some(uid) = user else {
            doorbell.signal();
            return None;
        };
        let wait = self.0.wait(uid, now);
        if !wait.is_zero() {
            return Some(wait);
        }
        let before = thread_time();
        doorbell.signal();
        let took = thread_time().saturating_sub(before).as_nanos();
        let took = u32::try_from(took).unwrap_or(u32::MAX);
        self.0.count_many(uid, took, now);
        None
    }
}
