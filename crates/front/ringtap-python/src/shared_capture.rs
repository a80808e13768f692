// SPDX-License-Identifier: MIT OR Apache-2.0
//! A capture that Python's objects and Arrow's streams share.
//!
//! Invariants
//! - The capture is only locked without the interpreter's lock, so a thread that waits does not stop the interpreter.
//! - A child of fork never touches the parent's capture: its threads are not there.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringtap::{Capture, Control, Next};
use ringtap_columns::{LaneLinks, TakenPackets};

use crate::source::{PacketSource, PartsTaken, TakeError, TakeStep, require_own_process};

/// Pause in which another thread locks the capture, and most of them.
const TURN: Duration = Duration::from_micros(100);
const TURNS: u32 = 100;

/// A capture behind a lock.
pub(crate) struct SharedCapture {
    /// Absent once it is closed.
    capture: Mutex<Option<Capture>>,
    /// Threads that wait for the lock.
    waiting: AtomicU32,
    control: Option<Arc<dyn Control>>,
    links: Arc<LaneLinks>,
    device: String,
    process: u32,
}

impl SharedCapture {
    pub(crate) fn new(capture: Capture) -> Self {
        SharedCapture {
            control: Some(Arc::clone(capture.control())),
            waiting: AtomicU32::new(0),
            links: LaneLinks::new(&capture).into(),
            device: capture.facts().device.clone(),
            capture: Mutex::new(Some(capture)),
            process: std::process::id(),
        }
    }

    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    pub(crate) fn require_own_process(&self) -> Result<(), TakeError> {
        require_own_process(&self.device, self.process)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Capture>> {
        self.waiting.fetch_add(1, Relaxed);
        let capture = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Relaxed);
        capture
    }

    /// Lets another thread lock the capture, which a loop of waits would keep from it.
    fn let_others(&self) {
        for _ in 0..TURNS {
            if self.waiting.load(Relaxed) == 0 {
                break;
            }
            std::thread::sleep(TURN);
        }
    }

    /// Calls `call` with the open capture. Not for a thread with the interpreter's lock.
    pub(crate) fn with<T, E: From<TakeError>>(
        &self,
        call: impl FnOnce(&mut Capture) -> Result<T, E>,
    ) -> Result<T, E> {
        self.require_own_process()?;
        let mut capture = self.lock();
        match capture.as_mut() {
            Some(capture) => call(capture),
            None => {
                Err(TakeError::Closed(format!("{}: the capture is closed", self.device)).into())
            }
        }
    }

    /// Ends the source; what is in the pool can still be read.
    pub(crate) fn stop(&self) {
        if let Some(control) = &self.control {
            control.stop();
        }
    }

    /// Ends the capture. Not for a thread with the interpreter's lock.
    pub(crate) fn close(&self) {
        // Ends a wait of another thread, which has the lock.
        self.stop();
        drop(self.lock().take());
    }
}

impl PacketSource for SharedCapture {
    fn step(&self, taking: &mut PartsTaken, until: Instant) -> Result<TakeStep, TakeError> {
        let step = self.with(|capture| take_until(capture, taking, until));
        self.let_others();
        step
    }

    fn links(&self) -> Arc<LaneLinks> {
        Arc::clone(&self.links)
    }
}

fn take_until(
    capture: &mut Capture,
    taking: &mut PartsTaken,
    until: Instant,
) -> Result<TakeStep, TakeError> {
    while taking.count < taking.packets {
        let next = if taking.count == 0 || taking.gathers {
            capture.next(Some(until.saturating_duration_since(Instant::now())))?
        } else {
            capture.try_next()?
        };
        match next {
            Next::Batch(batch) => taking.push(TakenPackets::take(capture, batch)?),
            Next::Empty if taking.count > 0 && !taking.gathers => return Ok(TakeStep::Enough),
            Next::Empty => return Ok(TakeStep::Looked),
            Next::Ended if taking.count == 0 => {
                capture.outcome()?;
                return Ok(TakeStep::Ended);
            }
            Next::Ended => return Ok(TakeStep::Ended),
        }
        if Instant::now() >= until {
            return Ok(TakeStep::Looked);
        }
    }
    Ok(TakeStep::Enough)
}

impl Drop for SharedCapture {
    fn drop(&mut self) {
        // The capture's threads are not in a child of fork, and waiting for them would never end.
        if self.process != std::process::id() {
            let capture = self.capture.get_mut();
            std::mem::forget(capture.unwrap_or_else(PoisonError::into_inner).take());
            std::mem::forget(self.control.take());
        }
    }
}
