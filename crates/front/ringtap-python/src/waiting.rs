// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting without the interpreter's lock, with a look for signals at least each 0.1 s.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::Error;

/// Longest wait between two looks for signals.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// A time that Python gives.
pub(crate) fn from_seconds(number: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(number)
        .map_err(|_| PyValueError::new_err("expected a number of seconds from 0"))
}

/// Runs `work` on another thread; a signal that raises an exception here calls `stop`, and is raised when the work has
/// ended.
pub(crate) fn while_looking_for_signals<T: Send>(
    python: Python<'_>,
    work: impl FnOnce() -> T + Send,
    stop: impl Fn() + Send + Sync,
) -> PyResult<T> {
    let (mut raised, (until_end, ended)) = (None, mpsc::channel::<()>());
    // Of this thread alone; but a reference to a receiver may not leave the interpreter's lock.
    let ended = Mutex::new(ended);
    let wait = || {
        let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(LOOK)
    };
    let result = std::thread::scope(|scope| {
        let working = scope.spawn(move || {
            let _until_end = until_end;
            work()
        });
        while python.detach(wait) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = python.check_signals() {
                stop();
                raised.get_or_insert(error);
            }
        }
        python.detach(|| working.join())
    });
    match (raised, result) {
        (Some(error), _) => Err(error),
        (None, Ok(result)) => Ok(result),
        (None, Err(_)) => Err(Error::new_err("a thread of ringtap ended by a panic")),
    }
}
