// SPDX-License-Identifier: MIT OR Apache-2.0
//! What batches of packets are taken from: a capture, a search.
//!
//! Invariants
//! - A source is used without the interpreter's lock, also by threads that are not Python's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use ringtap_columns::{LaneLinks, TakenPackets};

use crate::batch::NativeBatch;
use crate::errors::{ClosedError, Error, ForkError, exception};
use crate::waiting::{LOOK, from_seconds};

/// Packets that are being taken, and how many are wanted.
pub(crate) struct PartsTaken {
    pub(crate) parts: Vec<Arc<TakenPackets>>,
    pub(crate) count: usize,
    pub(crate) packets: usize,
    /// Waits for all packets that are wanted; otherwise for the first one.
    pub(crate) gathers: bool,
}

/// What a step of taking ended with.
pub(crate) enum TakeStep {
    Enough,
    /// The time of the step is over.
    Looked,
    Ended,
}

/// Why packets cannot be taken.
pub(crate) enum TakeError {
    Ringtap(ringtap::Error),
    Closed(String),
    /// Another process opened the source.
    Fork(String),
    /// A thread of the source ended by a panic.
    Panic,
}

/// Gives packets to one caller at a time.
pub(crate) trait PacketSource: Send + Sync {
    /// Takes packets until there are as many as wanted, at most until `until`. [`TakeStep::Ended`] only once no packet
    /// is left and the source did not fail.
    fn step(&self, taking: &mut PartsTaken, until: Instant) -> Result<TakeStep, TakeError>;

    /// The links of all lanes that were taken from so far.
    fn links(&self) -> Arc<LaneLinks>;

    /// Called when a signal ends the wait of Python.
    fn interrupted(&self) {}
}

impl PartsTaken {
    pub(crate) fn push(&mut self, part: TakenPackets) {
        self.count += part.len();
        if !part.is_empty() {
            self.parts.push(Arc::new(part));
        }
    }
}

impl TakeError {
    pub(crate) fn text(&self) -> String {
        match self {
            TakeError::Ringtap(error) => error.to_string(),
            TakeError::Closed(text) | TakeError::Fork(text) => text.clone(),
            TakeError::Panic => "a thread of ringtap ended by a panic".to_owned(),
        }
    }
}

impl From<ringtap::Error> for TakeError {
    fn from(error: ringtap::Error) -> Self {
        TakeError::Ringtap(error)
    }
}

impl From<TakeError> for PyErr {
    fn from(error: TakeError) -> Self {
        let text = error.text();
        match error {
            TakeError::Ringtap(error) => exception(&error),
            TakeError::Closed(_) => ClosedError::new_err(text),
            TakeError::Fork(_) => ForkError::new_err(text),
            TakeError::Panic => Error::new_err(text),
        }
    }
}

/// Refuses a process that is not `process`, which opened `what`.
pub(crate) fn require_own_process(what: &str, process: u32) -> Result<(), TakeError> {
    if process == std::process::id() {
        return Ok(());
    }
    Err(TakeError::Fork(format!(
        "{what}: process {process} opened it: open it in this one, after fork"
    )))
}

/// Takes a batch by steps of at most [`LOOK`]; `None` at the end of the source.
///
/// Without a number of packets, one part. With a number and a timeout, that many are gathered. After the timeout, there
/// are fewer packets, or none.
pub(crate) fn take<E>(
    packets: Option<usize>,
    timeout: Option<Duration>,
    mut step: impl FnMut(&mut PartsTaken, Instant) -> Result<TakeStep, E>,
) -> Result<Option<Vec<Arc<TakenPackets>>>, E> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut taking = PartsTaken {
        parts: Vec::new(),
        count: 0,
        packets: packets.unwrap_or(1).max(1),
        gathers: packets.is_some() && timeout.is_some(),
    };
    loop {
        let look = Instant::now() + LOOK;
        let until = deadline.map_or(look, |deadline| deadline.min(look));
        let step = step(&mut taking, until)?;
        let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        match step {
            TakeStep::Ended if taking.count == 0 => return Ok(None),
            TakeStep::Looked if !is_late => {}
            _ => return Ok(Some(taking.parts)),
        }
    }
}

/// Takes a batch for Python, which handles signals meanwhile; `timeout` is in seconds.
pub(crate) fn take_batch(
    python: Python<'_>,
    source: &dyn PacketSource,
    packets: Option<usize>,
    timeout: Option<f64>,
) -> PyResult<Option<NativeBatch>> {
    let timeout = timeout.map(from_seconds).transpose()?;
    let parts = take(packets, timeout, |taking, until| {
        let step = python.detach(|| source.step(taking, until))?;
        python
            .check_signals()
            .inspect_err(|_| source.interrupted())?;
        PyResult::Ok(step)
    })?;
    Ok(parts.map(|parts| NativeBatch::new(parts, source.links())))
}
