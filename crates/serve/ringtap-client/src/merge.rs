// SPDX-License-Identifier: MIT OR Apache-2.0
//! Merges the packets of all lanes and sources in time-stamp order.
//!
//! A lane without waiting packets may still get a packet earlier than those of other lanes. The
//! merge therefore holds a packet back until the source's horizon has passed it, at most for the
//! window. It delivers a packet that comes later than that out of order, and counts it as late. The
//! window begins with the packet's time; for packets of a file, or in virtual time, when the merge
//! first holds the packet back.
//!
//! Invariants
//! - Held packets are leased chunks; the merge copies nothing. It holds none back while many chunks
//!   wait, so that holding never costs a reader its credit.
//! - No clock that is set back makes the merge hold a packet for more than two windows.

use std::time::{Duration, Instant};

use ringtap_ipc::time::{nanoseconds, now_ns};
use ringtap_pool::ids::LaneId;
use ringtap_pool::reader::{Reader, RecvError};

/// Usual window of readers that merge lanes by time.
pub const ORDER_WINDOW: Duration = Duration::from_millis(100);

/// Longest sleep while the horizon has not passed the earliest packet.
const HELD_PAUSE: Duration = Duration::from_millis(1);

/// How well time-stamp order was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Packets delivered.
    pub packets: u64,
    /// Packets earlier than a packet delivered before.
    pub late: u64,
}

pub(crate) struct Merge {
    window: Duration,
    /// When the merge began.
    begun_ns: u64,
    /// Since when it holds a packet back for which [`Merge::is_old`] is true.
    held: Option<Instant>,
    last_ns: u64,
    pub(crate) order: Order,
}

/// The lane that delivers next.
pub(crate) enum Turn {
    /// This lane of this reader delivers packets up to this time.
    Of(usize, LaneId, u64),
    /// Packets wait, but an earlier packet may still come.
    Hold(Hold),
    Nothing,
    Ended,
}

/// Why and how long the merge holds a packet back.
#[derive(Clone, Copy)]
pub(crate) struct Hold {
    /// Time until the window ends.
    pub(crate) left: Duration,
    /// The sources know their horizon: it passes the packet when the hub looks again.
    pub(crate) has_horizon: bool,
}

impl Hold {
    /// Time until the reader looks again, if nothing wakes it before. A hub that moves its horizon
    /// need not wake readers.
    pub(crate) fn look_again_in(self) -> Duration {
        if self.has_horizon {
            self.left.min(HELD_PAUSE)
        } else {
            self.left
        }
    }
}

impl Merge {
    pub(crate) fn new(window: Duration) -> Self {
        Merge {
            window,
            begun_ns: now_ns(),
            held: None,
            last_ns: 0,
            order: Order::default(),
        }
    }

    /// The lane that delivers next. With `is_leaving`, the merge holds no packet back.
    pub(crate) fn turn<'a>(
        &mut self,
        readers: impl Iterator<Item = &'a mut Reader>,
        is_leaving: bool,
    ) -> Result<Turn, RecvError> {
        let (mut first, mut second): (Option<(u64, usize, LaneId)>, u64) = (None, u64::MAX);
        // Time up to which no lane without waiting packets gets another one.
        let mut horizon = u64::MAX;
        let (mut is_crowded, mut ended) = (false, true);
        for (at, reader) in readers.enumerate() {
            let peek = reader.peek()?;
            if peek.is_partial {
                horizon = horizon.min(peek.horizon_ns);
            }
            is_crowded |= peek.is_crowded;
            ended &= peek.ended;
            second = second.min(peek.second_ns.unwrap_or(u64::MAX));
            let Some((time, lane)) = peek.first else {
                continue;
            };
            match first {
                Some((earliest, ..)) if time >= earliest => second = second.min(time),
                before => {
                    second = second.min(before.map_or(u64::MAX, |(time, ..)| time));
                    first = Some((time, at, lane));
                }
            }
        }
        let Some((time, at, lane)) = first else {
            return Ok(if ended { Turn::Ended } else { Turn::Nothing });
        };
        if is_leaving || is_crowded {
            horizon = u64::MAX;
        }
        if time > horizon && self.is_old(time) {
            let held = self.held.get_or_insert_with(Instant::now).elapsed();
            let left = self.window.saturating_sub(held);
            if !left.is_zero() {
                return Ok(Turn::Hold(Hold {
                    left,
                    has_horizon: horizon > 0,
                }));
            }
            horizon = u64::MAX;
        } else if time > horizon {
            let (now, window) = (now_ns(), nanoseconds(self.window));
            let end = now.saturating_sub(window);
            // A time so far ahead comes from a clock that was set back since.
            let is_ahead = time > now.saturating_add(window);
            if time > end && !is_ahead {
                return Ok(Turn::Hold(Hold {
                    left: Duration::from_nanos(time - end),
                    has_horizon: horizon > 0,
                }));
            }
            horizon = if is_ahead { time } else { end };
        }
        Ok(Turn::Of(at, lane, second.min(horizon)))
    }

    /// Whether a packet is so much older than the merge that its time comes from a file, from virtual time or from
    /// another clock, and does not say how long ago the packet was captured.
    fn is_old(&self, time_ns: u64) -> bool {
        let windows = nanoseconds(self.window).saturating_mul(2);
        time_ns < self.begun_ns.saturating_sub(windows)
    }

    /// Counts packets with these times as delivered.
    pub(crate) fn gave(&mut self, times_ns: impl Iterator<Item = u64>) {
        self.held = None;
        for time in times_ns {
            self.order.packets += 1;
            self.order.late += u64::from(time < self.last_ns);
            self.last_ns = self.last_ns.max(time);
        }
    }
}

#[cfg(test)]
mod tests;
