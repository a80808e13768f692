// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waking readers that sleep: at once, or when enough packets wait for them.
#![forbid(unsafe_code)]

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ringtap_pool::wake::Signal;

use ringtap_ipc::event::Heard;

use super::{Seat, Seats};
use crate::capture::Capture;

/// How often a reader is looked at that waits for more packets, at most.
const LOOK: Duration = Duration::from_micros(250);

/// Which sleepers are woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// Everyone who has not taken all that there is.
    All,
    /// Of these, readers of sources that they do not hear themselves. Who hears a source is awake
    /// most likely, and is looked at before the hub sleeps again.
    Deaf,
}

impl Seats {
    /// Wakes those that sleep and have what they wait for; tells when to look again for the
    /// sake of those that have only a part of it.
    pub(crate) fn wake(
        &mut self,
        whom: Whom,
        captures: &mut [Capture],
        now: Instant,
    ) -> Option<Duration> {
        let mut look_again = None;
        for seat in self
            .taken
            .values_mut()
            .filter(|seat| seat.watermark.packets > 1)
        {
            if let Some(left) = seat.still_waits(captures, now) {
                let soon = (left / 4).max(LOOK).min(left);
                look_again = Some(look_again.map_or(soon, |other: Duration| other.min(soon)));
            }
        }
        for (at, capture) in captures.iter_mut().enumerate() {
            if whom == Whom::Deaf && capture.readers_wake.is_some() {
                continue;
            }
            let taken = &self.taken;
            capture.distributor.wake_sleepers(|reader| {
                let at_it = |seat: &&Seat| {
                    let mut inlets = seat.inlets.iter();
                    inlets.any(|inlet| inlet.capture == at && inlet.reader == reader)
                };
                if let Some(seat) = taken.values().find(at_it) {
                    seat.bell.signal();
                }
            });
        }
        look_again
    }
}

impl Seats {
    /// The bells that are listened to.
    pub(crate) fn bells(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let heard = self.taken.values().filter(|seat| !seat.is_silent);
        heard.map(|seat| seat.bell.as_fd())
    }

    /// Forgets what these readers' bells said; those that are gone are not listened to again.
    pub(crate) fn hear(&mut self, rang: impl Iterator<Item = bool>) {
        let listened = self.taken.values_mut().filter(|seat| !seat.is_silent);
        for (seat, _) in listened.zip(rang).filter(|(_, rang)| *rang) {
            seat.is_silent = seat.bell.clear() == Heard::Gone;
        }
    }
}

impl Seat {
    /// How much longer a sleeper waits that has some packets, but not enough; `None` if it is to
    /// be woken, or has none at all.
    fn still_waits(&mut self, captures: &mut [Capture], now: Instant) -> Option<Duration> {
        let waiting: u64 = self
            .inlets
            .iter()
            .map(|inlet| waiting(inlet, captures))
            .sum();
        let since = match waiting {
            0 => None,
            _ => Some(*self.waits_since.get_or_insert(now)),
        };
        self.waits_since = since;
        let left = since.map(|since| {
            let limit = self.watermark.time_limit;
            limit.saturating_sub(now.saturating_duration_since(since))
        });
        let enough = waiting >= u64::from(self.watermark.packets);
        let left = left.filter(|left| !enough && !left.is_zero());
        for inlet in &self.inlets {
            let distributor = &mut captures[inlet.capture].distributor;
            distributor.defer(inlet.reader, left.is_some());
        }
        if left.is_none() {
            self.waits_since = None;
        }
        left
    }
}

/// Packets that wait for this reader at a source, by what it says it took.
fn waiting(inlet: &super::Inlet, captures: &[Capture]) -> u64 {
    let capture = &captures[inlet.capture];
    let Some(progress) = capture.distributor.progress(inlet.reader) else {
        return 0;
    };
    let taken = progress.delivered.load(Relaxed) + progress.filtered.load(Relaxed);
    let offered = capture.lanes().zip(&inlet.starts).map(|(lane, start)| {
        let missed = capture.distributor.missed(inlet.reader, lane).packets;
        (capture.distributor.position(lane) - start).saturating_sub(missed)
    });
    offered.sum::<u64>().saturating_sub(taken)
}
