// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop of a reader: batches as they come, a tick at even intervals, until the end.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use anyhow::Result;
use ringtap_pool::reader::{Batch, Next};

use super::Attached;

/// Whether a reader goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It wants more.
    Go,
    /// It has enough.
    Stop,
}

/// What a reader does with packets.
pub(crate) trait Consumer {
    /// Takes a batch.
    fn batch(&mut self, batch: &Batch<'_>) -> Result<Flow>;

    /// Is called when nothing is there to be read.
    fn idle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Is called at even intervals, packets or not.
    fn tick(&mut self) -> Result<Flow>;
}

impl Attached {
    /// Hands everything to `consumer` until the capture ends or the consumer has enough.
    ///
    /// Ticks that fall behind are left out, not made up for.
    pub(crate) fn receive(
        &mut self,
        interval: Duration,
        consumer: &mut impl Consumer,
    ) -> Result<()> {
        let mut due = Instant::now() + interval;
        loop {
            let now = Instant::now();
            if now >= due {
                if consumer.tick()? == Flow::Stop {
                    return Ok(());
                }
                while due <= now {
                    due += interval;
                }
            }
            match self.reader.next()? {
                Next::Batch(batch) => {
                    self.waiter.found();
                    if consumer.batch(&batch)? == Flow::Stop {
                        return Ok(());
                    }
                }
                Next::Empty => {
                    consumer.idle()?;
                    self.waiter.wait(Some(due))?;
                }
                Next::Ended => return Ok(()),
            }
        }
    }
}
