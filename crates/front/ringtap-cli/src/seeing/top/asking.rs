// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread that asks the hub for its counters again and again.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ringtap_client::{Connection, ControlError};
use ringtap_ipc::protocol::HubStatus;

/// How much later than asked for an answer may come before that is said.
const GRACE: Duration = Duration::from_secs(2);

type Answer = Result<HubStatus, ControlError>;

/// The answers of a hub; it is asked until this is dropped.
pub(super) struct Asking {
    answers: Receiver<Answer>,
    interval: Duration,
    last: Cell<Instant>,
}

impl Asking {
    pub(super) fn start(connection: Connection, interval: Duration) -> Result<Self> {
        let (sender, answers) = mpsc::channel();
        let ask = move || {
            let mut next = Instant::now();
            loop {
                let answer = connection.status();
                let is_last = answer.is_err();
                if sender.send(answer).is_err() || is_last {
                    return;
                }
                // After a pause, for instance of the whole machine, nothing is made up for.
                next = (next + interval).max(Instant::now());
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        };
        thread::Builder::new()
            .name("asking".into())
            .spawn(ask)
            .context("cannot start a thread")?;
        Ok(Asking {
            answers,
            interval,
            last: Cell::new(Instant::now()),
        })
    }

    /// Waits for the first answer.
    pub(super) fn first(&self) -> Result<HubStatus> {
        self.last.set(Instant::now());
        Ok(self.answers.recv().context("the asking thread ended")??)
    }

    /// An answer, if one has come; an error once the hub is gone.
    pub(super) fn next(&self) -> Result<Option<HubStatus>> {
        match self.answers.try_recv() {
            Ok(answer) => {
                self.last.set(Instant::now());
                Ok(Some(answer?))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => anyhow::bail!("the asking thread ended"),
        }
    }

    /// For how many seconds there was no answer, if that is too long.
    pub(super) fn silence_s(&self) -> Option<u64> {
        let since = self.last.get().elapsed();
        (since > self.interval + GRACE).then_some(since.as_secs())
    }
}
