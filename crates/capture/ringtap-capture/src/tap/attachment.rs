// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps a tap attached: after a detachment from outside, and to an interface that comes back.
//!
//! Invariants
//! - Packets that passed meanwhile are never counted twice; where the interface's counter does not
//!   tell their number, a message says so.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ringtap_net::interface::{Interface, Promiscuous};
use ringtap_pool::memory::Words;

use super::layout::{ControlWords, LaneWords};
use super::object::set_clock;
use super::programs::{LinkSet, Links};
use super::source::lane_counts;
use crate::CaptureError;
use crate::clock;
use crate::monitor::{Attachment, Repairs, repaired_note};
use crate::nic::SharedLosses;
use ringtap_bpf::link::{self, Hook};
use ringtap_bpf::program::NO_INTERFACE;

/// Attempts to read the interface's counter without a packet in between.
const STEADY_TRIES: u32 = 16;

/// The interface's counters and the packets that passed while the program was detached.
#[derive(Clone)]
pub(super) struct UnseenPackets {
    pub(super) nic: SharedLosses,
    unseen: Arc<AtomicU64>,
}

impl UnseenPackets {
    pub(super) fn new(nic: SharedLosses) -> Self {
        UnseenPackets {
            nic,
            unseen: Arc::default(),
        }
    }

    /// Packets that passed while the program was detached, as far as they are known.
    pub(super) fn unseen(&self) -> u64 {
        self.unseen.load(Relaxed)
    }
}

/// A tap's attachment to its interface.
pub(super) struct TapAttachment {
    pub(super) links: Links,
    pub(super) lanes: Words<LaneWords>,
    pub(super) controls: Words<ControlWords>,
    pub(super) missed: UnseenPackets,
    /// Whether the interface receives packets for other hosts too, and the socket for it.
    pub(super) is_promiscuous: bool,
    pub(super) promiscuous: Option<Promiscuous>,
    /// The latest consistent reading, if the interface counts what the tap sees.
    pub(super) reading: Option<CounterReading>,
    pub(super) repairs: Repairs,
}

/// Packets by the interface's counter, and by the tap's before and after it was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CounterReading {
    before: u64,
    received: u64,
    after: u64,
}

impl TapAttachment {
    /// Takes the first reading, where the interface counts exactly the packets that the tap sees: all
    /// received packets, in the driver.
    pub(super) fn begin(&mut self) {
        let links = self.links.lock();
        let sees_all = matches!(
            links.capturing.as_slice(),
            [only] if matches!(only.hook, Hook::Native | Hook::NativeBound)
        );
        drop(links);
        self.reading = sees_all.then(|| self.read()).flatten();
    }

    fn offered(&self) -> u64 {
        let lanes = self.lanes.iter().map(lane_counts);
        lanes.map(|lane| lane.offered).sum()
    }

    fn read(&self) -> Option<CounterReading> {
        let nic = self.missed.nic.lock();
        let mut reading = CounterReading::default();
        for _ in 0..STEADY_TRIES {
            reading = CounterReading {
                before: self.offered(),
                received: nic.received()?,
                after: self.offered(),
            };
            if reading.before == reading.after {
                break;
            }
        }
        Some(reading)
    }

    /// Counts the packets since the last reading that the tap has not seen; `None` if unknown.
    fn count_unseen(&mut self) -> Option<u64> {
        let (then, now) = (self.reading?, self.read()?);
        self.reading = Some(now);
        let received = now.received.checked_sub(then.received)?;
        let unseen = received.saturating_sub(now.after.saturating_sub(then.before));
        self.missed.unseen.fetch_add(unseen, Relaxed);
        Some(unseen)
    }
}

/// Attaches again what was detached; returns whether anything was.
fn repair(links: &mut LinkSet, interface: &Interface) -> Result<bool, CaptureError> {
    let mut was_detached = false;
    for attached in links.all_mut() {
        if link::is_attached(attached.link.as_fd()) {
            continue;
        }
        // A removed interface has no links either; the monitor sees its removal.
        interface.refresh()?;
        attached.attach_again(interface)?;
        was_detached = true;
    }
    Ok(was_detached)
}

impl Attachment for TapAttachment {
    fn check(&mut self, interface: &Interface) -> Result<Option<String>, CaptureError> {
        set_clock(&self.controls, clock::tai_minus_utc_ns());
        let links = self.links.clone();
        let repair = || repair(&mut links.lock(), interface);
        if self.repairs.attempt(interface, repair)? {
            return Ok(Some(repaired_note(interface, self.count_unseen())));
        }
        if self.reading.is_some() {
            self.reading = self.read();
        }
        Ok(None)
    }

    fn detach(&mut self) {
        let mut links = self.links.lock();
        for attached in links.all_mut() {
            link::detach(&attached.link);
            // Nothing is loaded, so nothing can fail. The interface may come back with the same index.
            let _unbound = attached.copy.bind_to(NO_INTERFACE);
        }
        links.interface = NO_INTERFACE;
        drop(links);
        self.promiscuous = None;
    }

    fn attach(&mut self, interface: &Interface) -> Result<(), CaptureError> {
        if !interface.link_type.is_ethernet() {
            return Err(CaptureError::NotEthernet {
                kind: "the tap",
                link_type: interface.link_type.0,
                interface: interface.name.clone(),
            });
        }
        self.missed.nic.lock().continue_with(interface)?;
        if self.is_promiscuous {
            self.promiscuous = Some(Promiscuous::enable(interface.index)?);
        }
        let mut links = self.links.lock();
        links.interface = interface.index;
        for attached in links.all_mut() {
            attached.attach_again(interface)?;
        }
        drop(links);
        if self.reading.is_some() {
            self.reading = self.read();
        }
        Ok(())
    }
}
