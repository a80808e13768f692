// SPDX-License-Identifier: MIT OR Apache-2.0
//! A capture: opening, batches, counters, recording.
//!
//! Invariants
//! - The capture is only locked in `detach`, so a thread that waits for the lock does not stop the interpreter.
//! - A child of fork never touches the parent's capture: its threads are not there.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use ringtap::{Capture, Control, Next, OpenOptions};
use ringtap_client::{Connection, default_socket};
use ringtap_columns::{LaneLinks, TakenPackets};
use ringtap_explain::report;
use ringtap_record::{RecordExt as _, RecordOptions, StopAt};

use crate::batch::NativeBatch;
use crate::errors::{ClosedError, Error, ForkError, HubError, RecordError, exception};

/// Longest wait between two looks for signals.
const LOOK: Duration = Duration::from_millis(100);
/// Pause in which another thread locks the capture, and most of them.
const TURN: Duration = Duration::from_micros(100);
const TURNS: u32 = 100;

/// A capture, and what Python asks of it.
#[pyclass(name = "NativeCapture", module = "ringtap", frozen)]
pub(crate) struct NativeCapture {
    /// Absent once it is closed.
    capture: Mutex<Option<Capture>>,
    /// Threads that wait for the lock.
    waiting: AtomicU32,
    control: Option<Arc<dyn Control>>,
    links: Arc<LaneLinks>,
    device: String,
    process: u32,
}

/// What a wait for packets ended with.
enum TakeStep {
    Enough,
    Looked,
    Ended,
}

impl NativeCapture {
    fn require_own_process(&self) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(ForkError::new_err(format!(
            "{}: process {} opened the capture: open it in this one, after fork",
            self.device, self.process
        )))
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

    fn end_source(&self) {
        if let Some(control) = &self.control {
            control.stop();
        }
    }

    /// Calls `call` with the open capture, without the interpreter's lock.
    fn with<T: Send>(
        &self,
        python: Python<'_>,
        call: impl FnOnce(&mut Capture) -> Result<T, ringtap::Error> + Send,
    ) -> PyResult<T> {
        self.require_own_process()?;
        let called = python.detach(|| self.lock().as_mut().map(call));
        match called {
            Some(result) => result.map_err(|error| exception(&error)),
            None => Err(self.closed()),
        }
    }

    fn closed(&self) -> PyErr {
        ClosedError::new_err(format!("{}: the capture is closed", self.device))
    }
}

/// Takes what waits, up to `packets`; waits until `until` for the first packet, or with `gathers` for all of them.
fn take(
    capture: &mut Capture,
    parts: &mut Vec<Arc<TakenPackets>>,
    count: &mut usize,
    packets: usize,
    gathers: bool,
    until: Instant,
) -> Result<TakeStep, ringtap::Error> {
    while *count < packets {
        let next = if *count == 0 || gathers {
            capture.next(Some(until.saturating_duration_since(Instant::now())))?
        } else {
            capture.try_next()?
        };
        match next {
            Next::Batch(batch) => {
                let part = TakenPackets::take(capture, batch)?;
                *count += part.len();
                if !part.is_empty() {
                    parts.push(Arc::new(part));
                }
            }
            Next::Empty if *count > 0 && !gathers => return Ok(TakeStep::Enough),
            Next::Empty => return Ok(TakeStep::Looked),
            Next::Ended => return Ok(TakeStep::Ended),
        }
        if Instant::now() >= until {
            return Ok(TakeStep::Looked);
        }
    }
    Ok(TakeStep::Enough)
}

/// Opens a device or a group of a hub.
#[pyfunction]
#[pyo3(signature = (device, *, filter="", snap_length=None, name=None, credit=None, in_order=None, private=false, socket=None, watermark=None))]
#[expect(clippy::too_many_arguments, reason = "they are Python's keywords")]
pub(crate) fn open(
    python: Python<'_>,
    device: &str,
    filter: &str,
    snap_length: Option<u32>,
    name: Option<&str>,
    credit: Option<u32>,
    in_order: Option<f64>,
    private: bool,
    socket: Option<&str>,
    watermark: Option<(u32, f64)>,
) -> PyResult<NativeCapture> {
    let mut options = OpenOptions::new()
        .filter(filter)
        .name(name.unwrap_or("python"))
        .private(private);
    if let Some(bytes) = snap_length {
        options = options.snap_length(bytes);
    }
    if let Some(chunks) = credit {
        options = options.credit(chunks);
    }
    if let Some(window) = in_order {
        options = options.in_order(seconds(window)?);
    }
    if let Some(path) = socket {
        options = options.socket(path);
    }
    if let Some((packets, limit)) = watermark {
        options = options.watermark(packets, seconds(limit)?);
    }
    let opened = python.detach(|| options.open(device));
    let capture = opened.map_err(|error| exception(&error))?;
    Ok(NativeCapture {
        control: Some(Arc::clone(capture.control())),
        waiting: AtomicU32::new(0),
        links: LaneLinks::new(&capture).into(),
        device: capture.facts().device.clone(),
        capture: Mutex::new(Some(capture)),
        process: std::process::id(),
    })
}

fn seconds(number: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(number)
        .map_err(|_| PyValueError::new_err("expected a number of seconds from 0"))
}

#[pymethods]
impl NativeCapture {
    /// The next batch; None at the end of the capture. After `timeout` seconds it has fewer packets than asked for, or
    /// none.
    #[pyo3(signature = (packets, timeout))]
    fn take(
        &self,
        python: Python<'_>,
        packets: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<Option<NativeBatch>> {
        let timeout = timeout.map(seconds).transpose()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let gathers = packets.is_some() && timeout.is_some();
        let packets = packets.unwrap_or(1).max(1);
        let (mut parts, mut count) = (Vec::new(), 0);
        loop {
            let look = Instant::now() + LOOK;
            let until = deadline.map_or(look, |deadline| deadline.min(look));
            let step = self.with(python, |capture| {
                take(capture, &mut parts, &mut count, packets, gathers, until)
            })?;
            python.check_signals()?;
            python.detach(|| self.let_others());
            let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            match step {
                TakeStep::Ended if count == 0 => {
                    self.with(python, |capture| capture.outcome())?;
                    return Ok(None);
                }
                TakeStep::Looked if !is_late => {}
                _ => break,
            }
        }
        Ok(Some(NativeBatch::new(parts, Arc::clone(&self.links))))
    }

    /// The counters so far, as `ringtap count --json` prints them.
    fn counters(&self, python: Python<'_>) -> PyResult<String> {
        let counters = self.with(python, |capture| capture.counters())?;
        let line = report::json(&self.device, "python", None, &counters);
        line.map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// The counters as text: what became of each packet, and what helps against losses.
    fn account(&self, python: Python<'_>) -> PyResult<String> {
        self.with(python, |capture| {
            let counters = capture.counters()?;
            let facts = capture.facts();
            Ok(report::counters(
                &format!("{}:", facts.device),
                &facts.offered_from,
                &counters,
            ))
        })
    }

    /// Facts about the source, as JSON.
    fn facts(&self, python: Python<'_>) -> PyResult<String> {
        let facts = self.with(python, |capture| Ok(capture.facts().clone()))?;
        serde_json::to_string(&facts).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// Changes the filter while packets arrive.
    fn set_filter(&self, python: Python<'_>, filter: &str) -> PyResult<()> {
        self.with(python, |capture| capture.set_filter(filter))
    }

    /// Ends the source, from any thread; what is in the pool can still be read.
    fn stop(&self) -> PyResult<()> {
        self.require_own_process()?;
        self.end_source();
        Ok(())
    }

    /// Records until the capture ends or a limit is reached. Returns packets, files and the name of the last file.
    #[pyo3(signature = (file, *, size=None, seconds=None, keep=None, compress=None, packets=None, duration=None))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's keywords")]
    fn record(
        &self,
        python: Python<'_>,
        file: &str,
        size: Option<&str>,
        seconds: Option<u32>,
        keep: Option<u32>,
        compress: Option<&str>,
        packets: Option<u64>,
        duration: Option<f64>,
    ) -> PyResult<(u64, u64, String)> {
        self.require_own_process()?;
        let refused = |error: String| RecordError::new_err(error);
        let size = size.map(ringtap_record::file_size).transpose();
        let compress = compress.map(str::parse).transpose();
        let options = RecordOptions {
            file_size: size.map_err(|error| refused(error.to_string()))?,
            file_seconds: seconds,
            file_count: keep,
            compress: compress
                .map_err(|error: ringtap_record::CompressionError| refused(error.to_string()))?,
            stop_at: StopAt {
                packets,
                duration: duration.map(self::seconds).transpose()?,
                ..StopAt::default()
            },
            ..RecordOptions::to_file(file)
        };
        options
            .check()
            .map_err(|error| refused(error.to_string()))?;
        let record = || {
            let mut capture = self.lock();
            let recorded = capture.as_mut().map(|capture| capture.record(&options));
            recorded.map(|recorded| recorded.map_err(|error| error.to_string()))
        };
        let recorded = while_looking_for_signals(python, record, || self.end_source())?;
        let recorded = recorded.ok_or_else(|| self.closed())?;
        let files = recorded.map_err(refused)?.files;
        Ok((files.packets, files.files, files.file))
    }

    /// Ends the capture; batches that are kept stay readable.
    fn close(&self, python: Python<'_>) -> PyResult<()> {
        self.require_own_process()?;
        // Ends a wait of another thread, which has the lock.
        self.end_source();
        python.detach(|| drop(self.lock().take()));
        Ok(())
    }
}

impl Drop for NativeCapture {
    fn drop(&mut self) {
        // The capture's threads are not in a child of fork, and waiting for them would never end.
        if self.process != std::process::id() {
            let capture = self.capture.get_mut();
            std::mem::forget(capture.unwrap_or_else(PoisonError::into_inner).take());
            std::mem::forget(self.control.take());
        }
    }
}

/// Runs `work` on another thread; a signal that raises an exception here calls `stop`, and is raised when the work has
/// ended.
fn while_looking_for_signals<T: Send>(
    python: Python<'_>,
    work: impl FnOnce() -> T + Send,
    stop: impl Fn() + Send + Sync,
) -> PyResult<T> {
    let mut raised = None;
    let done = std::thread::scope(|scope| {
        let working = scope.spawn(work);
        while !working.is_finished() {
            python.detach(|| std::thread::sleep(LOOK));
            if let Err(error) = python.check_signals() {
                stop();
                raised.get_or_insert(error);
            }
        }
        python.detach(|| working.join())
    });
    match (raised, done) {
        (Some(error), _) => Err(error),
        (None, Ok(done)) => Ok(done),
        (None, Err(_)) => Err(Error::new_err("a thread of ringtap ended by a panic")),
    }
}

fn connect(socket: Option<&str>) -> PyResult<Connection> {
    let socket = socket.map_or_else(default_socket, Into::into);
    Connection::open(&socket, "python").map_err(|error| HubError::new_err(error.to_string()))
}

/// Where a hub lost packets within `interval` seconds and before, as JSON.
#[pyfunction]
#[pyo3(signature = (interval, socket=None))]
pub(crate) fn explain_hub(
    python: Python<'_>,
    interval: f64,
    socket: Option<&str>,
) -> PyResult<String> {
    let interval = seconds(interval)?;
    let hub = python.detach(|| connect(socket))?;
    let findings = python.detach(|| ringtap_explain::explain_hub(&hub, interval));
    let findings = findings.map_err(|error| HubError::new_err(error.to_string()))?;
    let findings: Vec<_> = findings
        .findings
        .iter()
        .map(|finding| {
            serde_json::json!({"text": finding.to_string(), "kind": finding.kind(),
                               "lost_packets": finding.lost_packets(), "advice": finding.advice()})
        })
        .collect();
    serde_json::to_string(&findings).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// The status of a hub, as `ringtap status` prints it.
#[pyfunction]
#[pyo3(signature = (socket=None))]
pub(crate) fn hub_status(python: Python<'_>, socket: Option<&str>) -> PyResult<String> {
    let hub = python.detach(|| connect(socket))?;
    let status = python.detach(|| hub.status());
    let status = status.map_err(|error| HubError::new_err(error.to_string()))?;
    serde_json::to_string(&status).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}
