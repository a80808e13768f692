// SPDX-License-Identifier: MIT OR Apache-2.0
//! Merges the packets of all lanes and sources in time-stamp order.
//!
//! A lane without waiting packets may still get a packet earlier than those of other lanes. So a
//! packet is held back, at most for the window. A packet that comes later than that is delivered
//! out of order and counted as late.

use std::time::Duration;

use ringtap_ipc::time::{nanoseconds, now_ns};
use ringtap_pool::ids::LaneId;
use ringtap_pool::reader::{Reader, RecvError};

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
    last_ns: u64,
    /// Present if late packets are counted.
    pub(crate) order: Option<Order>,
}

/// The lane that delivers next.
pub(crate) enum Turn {
    /// This lane of this reader delivers packets up to this time.
    Of(usize, LaneId, u64),
    /// Packets wait, but an earlier packet may still come.
    Hold(Duration),
    Nothing,
    Ended,
}

impl Merge {
    pub(crate) fn new(window: Duration) -> Self {
        Merge {
            window,
            last_ns: 0,
            order: Some(Order::default()),
        }
    }

    /// A merge of the waiting packets: holds no packet back and counts none as late.
    pub(crate) fn at_hand() -> Self {
        Merge {
            order: None,
            ..Merge::new(Duration::ZERO)
        }
    }

    /// The lane that delivers next. With `is_leaving`, the merge holds no packet back.
    pub(crate) fn turn<'a>(
        &self,
        readers: impl Iterator<Item = &'a mut Reader>,
        is_leaving: bool,
    ) -> Result<Turn, RecvError> {
        let (mut first, mut second): (Option<(u64, usize, LaneId)>, u64) = (None, u64::MAX);
        let (mut is_partial, mut ended) = (false, true);
        for (at, reader) in readers.enumerate() {
            let peek = reader.peek()?;
            is_partial |= peek.is_partial;
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
        if !is_partial || is_leaving {
            return Ok(Turn::Of(at, lane, second));
        }
        let horizon = now_ns().saturating_sub(nanoseconds(self.window));
        if time <= horizon {
            return Ok(Turn::Of(at, lane, second.min(horizon)));
        }
        Ok(Turn::Hold(Duration::from_nanos(time - horizon)))
    }

    /// Counts packets with these times as delivered.
    pub(crate) fn gave(&mut self, times_ns: impl Iterator<Item = u64>) {
        let Some(order) = &mut self.order else {
            return;
        };
        for time in times_ns {
            order.packets += 1;
            order.late += u64::from(time < self.last_ns);
            self.last_ns = self.last_ns.max(time);
        }
    }
}

#[cfg(test)]
mod tests;
