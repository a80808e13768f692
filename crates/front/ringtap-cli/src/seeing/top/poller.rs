// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread that reads the hub's counters at regular intervals.

use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringtap_client::{Connection, ControlError};
use ringtap_ipc::protocol::HubStatus;

/// An answer this much later than the interval makes the screen show a silent hub.
const GRACE: Duration = Duration::from_secs(2);

/// The hub's answers; the thread ends when this is dropped or the hub ends.
pub(super) struct Poller {
    answers: Receiver<Result<HubStatus, ControlError>>,
    interval: Duration,
    last: Instant,
}

impl Poller {
    /// Starts the thread and waits for the first answer.
    pub(super) fn start(connection: Connection, interval: Duration) -> Result<(Self, HubStatus)> {
        let (sender, answers) = mpsc::channel();
        let poll = move || {
            let mut next = Instant::now();
            loop {
                let answer = connection.status();
                let is_last = answer.is_err();
                if sender.send(answer).is_err() || is_last {
                    return;
                }
                // Do not make up for answers missed while the machine was suspended.
                next = (next + interval).max(Instant::now());
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        };
        thread::Builder::new()
            .name("poller".into())
            .spawn(poll)
            .context("cannot start a thread")?;
        let first = answers.recv().context("the polling thread ended")??;
        let poller = Poller {
            answers,
            interval,
            last: Instant::now(),
        };
        Ok((poller, first))
    }

    /// The next answer, if there is one; fails if the hub has ended.
    pub(super) fn try_next(&mut self) -> Result<Option<HubStatus>> {
        match self.answers.try_recv() {
            Ok(answer) => {
                self.last = Instant::now();
                Ok(Some(answer?))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => bail!("the polling thread ended"),
        }
    }

    /// Seconds without an answer, if the hub is silent.
    pub(super) fn silence_s(&self) -> Option<u64> {
        let since = self.last.elapsed();
        (since > self.interval + GRACE).then_some(since.as_secs())
    }
}
