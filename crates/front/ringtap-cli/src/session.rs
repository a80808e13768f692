// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a capture to its end on behalf of a verb.

use std::time::{Duration, Instant};

use anyhow::Result;
use ringtap::{Batch, Capture, Next};
use ringtap_explain::report;

use crate::{print, signals};

/// Longest time between two looks for signals.
const LOOK: Duration = Duration::from_millis(500);

/// Whether a reader continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It wants more packets.
    Go,
    /// It has enough.
    Stop,
}

/// A verb's handling of packets.
pub(crate) trait BatchConsumer {
    fn capture(&mut self) -> &mut Capture;

    fn batch(&mut self, batch: &Batch) -> Result<Flow>;

    /// Prints the counters so far on standard error.
    fn show(&mut self) -> Result<()> {
        let capture = self.capture();
        let (counters, facts) = (capture.counters()?, capture.facts());
        let title = format!("{} so far:", facts.device);
        print::note(report::counters(&title, &facts.offered_from, &counters));
        Ok(())
    }

    /// Runs when no packet waits.
    fn idle(&mut self) -> Result<Flow> {
        Ok(Flow::Go)
    }

    /// Runs at regular intervals, with or without packets.
    fn tick(&mut self) -> Result<Flow> {
        Ok(Flow::Go)
    }
}

/// Passes all batches to `consumer` until the capture ends or the consumer has enough.
///
/// Skips ticks that fall behind.
pub(crate) fn receive(interval: Duration, consumer: &mut impl BatchConsumer) -> Result<()> {
    let mut due = Instant::now() + interval;
    loop {
        let found = match consumer.capture().try_next()? {
            Next::Empty => {
                if consumer.idle()? == Flow::Stop {
                    return Ok(());
                }
                let left = due.saturating_duration_since(Instant::now());
                consumer.capture().next(Some(left.min(LOOK)))?
            }
            found => found,
        };
        match found {
            Next::Batch(batch) => {
                if consumer.batch(&batch)? == Flow::Stop {
                    return Ok(());
                }
            }
            Next::Empty => {}
            Next::Ended => return Ok(()),
        }
        if signals::wants_counters() {
            consumer.show()?;
        }
        let now = Instant::now();
        if now < due {
            continue;
        }
        if consumer.tick()? == Flow::Stop {
            return Ok(());
        }
        while due <= now {
            due += interval;
        }
    }
}
