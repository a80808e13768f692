// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow records of a capture as tables: a probe that runs in this process.
//!
//! Invariants
//! - A live capture never waits for Python: records that find the probe's queue full are counted as dropped.

use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use ringtap::{Capture, DeviceSpec, OpenOptions};
use ringtap_filter::Balance;
use ringtap_probe::analysis::{AnalysisKind, AnalysisPlan, CountedIn};
use ringtap_probe::export::WhenFull;
use ringtap_probe::export::arrow::FlowTables;
use ringtap_probe::flows::FlowOptions;
use ringtap_probe::{
    Probe, ProbeControl, ProbeEnd, ProbeError, ProbeOutcome, ProbePlan, ending, usual_workers,
};

use crate::arrow::ArrowTable;
use crate::errors::{DeviceError, Error, exception};
use crate::source::{TakeError, require_own_process};
use crate::stream::ArrowStream;
use crate::waiting::{LOOK, from_seconds};

/// A probe that runs, and the tables that it makes.
struct SharedFlows {
    /// Absent once it is closed.
    tables: Mutex<Option<Receiver<RecordBatch>>>,
    thread: Mutex<Option<JoinHandle<Result<ProbeOutcome, ProbeError>>>>,
    control: Option<Arc<ProbeControl>>,
    end: Option<ProbeEnd>,
    device: String,
    process: u32,
}

/// What a wait for a table ended with.
enum TableStep {
    Table(RecordBatch),
    Looked,
    Ended,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedFlows {
    /// Waits for the next table, at most until `until`. Not for a thread with the interpreter's lock.
    fn step(&self, until: Instant) -> Result<TableStep, TakeError> {
        require_own_process(&self.device, self.process)?;
        let tables = lock(&self.tables);
        let Some(tables) = tables.as_ref() else {
            return Err(TakeError::Closed(format!(
                "{}: the flows are closed",
                self.device
            )));
        };
        match tables.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(table) => Ok(TableStep::Table(table)),
            Err(RecvTimeoutError::Timeout) => Ok(TableStep::Looked),
            Err(RecvTimeoutError::Disconnected) => self.join().map(|()| TableStep::Ended),
        }
    }

    /// Waits for the probe's end; its failure is returned once.
    fn join(&self) -> Result<(), TakeError> {
        let Some(thread) = lock(&self.thread).take() else {
            return Ok(());
        };
        match thread.join() {
            Ok(Ok(outcome)) => Ok(outcome.result?),
            Ok(Err(ProbeError::Capture(error))) => Err(error.into()),
            Ok(Err(_)) | Err(_) => Err(TakeError::Panic),
        }
    }

    fn stop(&self) {
        if let Some(end) = &self.end {
            end();
        }
    }

    /// Ends the probe; tables that wait are lost. Not for a thread with the interpreter's lock.
    fn close(&self) {
        self.stop();
        drop(lock(&self.tables).take());
        let _failure_of_a_probe_that_nobody_reads = self.join();
    }
}

impl Drop for SharedFlows {
    fn drop(&mut self) {
        // A child of fork would end the probe of its parent.
        if self.process == std::process::id() {
            self.stop();
        } else {
            let tables = self.tables.get_mut();
            std::mem::forget(tables.unwrap_or_else(PoisonError::into_inner).take());
            std::mem::forget(self.control.take());
            std::mem::forget(self.end.take());
        }
    }
}

/// Tables of flows for other programs.
struct FlowStream(Arc<SharedFlows>);

impl Iterator for FlowStream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.step(Instant::now() + LOOK) {
                Ok(TableStep::Table(table)) => return Some(Ok(table)),
                Ok(TableStep::Looked) => {}
                Ok(TableStep::Ended) => return None,
                Err(error) => return Some(Err(ArrowError::ExternalError(error.text().into()))),
            }
        }
    }
}

impl RecordBatchReader for FlowStream {
    fn schema(&self) -> SchemaRef {
        FlowTables::schema()
    }
}

/// Flow records, and what Python asks of them.
#[pyclass(name = "NativeFlows", module = "ringtap", frozen)]
pub(crate) struct NativeFlows(Arc<SharedFlows>);

/// Starts a probe of a device or a capture file, which records flows.
#[pyfunction]
#[pyo3(signature = (device, *, filter, idle, active, max_flows, workers, socket))]
#[expect(clippy::too_many_arguments, reason = "they are Python's keywords")]
pub(crate) fn flows(
    python: Python<'_>,
    device: &str,
    filter: &str,
    idle: f64,
    active: f64,
    max_flows: Option<u32>,
    workers: Option<u32>,
    socket: Option<&str>,
) -> PyResult<NativeFlows> {
    let device: DeviceSpec = device
        .parse()
        .map_err(|error: ringtap_device::DeviceError| DeviceError::new_err(error.to_string()))?;
    let workers = match workers.map(NonZeroU32::new) {
        Some(Some(workers)) => workers,
        Some(None) => return Err(PyValueError::new_err("expected at least one worker")),
        None if device.kind.names_a_group() => NonZeroU32::MIN,
        None => usual_workers(),
    };
    let mut options = OpenOptions::new().filter(filter).name("python");
    if let Some(path) = socket {
        options = options.socket(path);
    }
    let usual = FlowOptions::default();
    let flows = FlowOptions {
        idle: at_least(Duration::from_millis(1), idle)?,
        active: at_least(Duration::from_millis(1), active)?,
        max_flows: max_flows.unwrap_or(usual.max_flows).max(1),
        ..usual
    };
    let opened = python.detach(|| start(&device, &options, workers, flows));
    opened.map(NativeFlows).map_err(|error| match error {
        ProbeError::Capture(error) => exception(&error),
        error => Error::new_err(error.to_string()),
    })
}

fn at_least(least: Duration, number: f64) -> PyResult<Duration> {
    Ok(from_seconds(number)?.max(least))
}

fn start(
    device: &DeviceSpec,
    options: &OpenOptions,
    workers: NonZeroU32,
    flows: FlowOptions,
) -> Result<Arc<SharedFlows>, ProbeError> {
    let analysis = AnalysisPlan {
        name: "flows".to_owned(),
        kind: AnalysisKind::Flows(flows),
        every: None,
        enabled: true,
        place: CountedIn::Workers,
    };
    let mut plan = ProbePlan::standard(None);
    plan.analyses = vec![analysis];
    let mut options = options.clone();
    if let Some(marks) = plan.congestion {
        options = options.congestion(marks);
    }
    let captures = options.open_workers(device, workers, Balance::Flow(plan.headers))?;
    let end = ending(captures.first(), None);
    let when_full = if device.kind.is_live() {
        WhenFull::Drop
    } else {
        WhenFull::Wait
    };
    let name = captures
        .first()
        .map(|one: &Capture| one.facts().device.clone());
    let (exporter, tables) = FlowTables::new();
    let probe = Probe::start(
        captures,
        None,
        plan,
        vec![Box::new(exporter)],
        when_full,
        None,
    )?;
    let control = Arc::clone(probe.control());
    let builder = std::thread::Builder::new().name("probe".to_owned());
    let thread = builder.spawn(move || probe.run(|_in_the_ledger| {}))?;
    Ok(Arc::new(SharedFlows {
        tables: Mutex::new(Some(tables)),
        thread: Mutex::new(Some(thread)),
        control: Some(control),
        end: Some(end),
        device: name.unwrap_or_default(),
        process: std::process::id(),
    }))
}

#[pymethods]
impl NativeFlows {
    /// The next table; None at the end.
    fn take(&self, python: Python<'_>) -> PyResult<Option<ArrowTable>> {
        loop {
            let step = python.detach(|| self.0.step(Instant::now() + LOOK))?;
            python.check_signals()?;
            match step {
                TableStep::Table(table) => return ArrowTable::new(Ok(table)).map(Some),
                TableStep::Looked => {}
                TableStep::Ended => return Ok(None),
            }
        }
    }

    /// The tables as a stream of record batches.
    fn stream(&self) -> ArrowStream {
        let flows = Arc::clone(&self.0);
        ArrowStream::new(FlowTables::schema(), move || FlowStream(Arc::clone(&flows)))
    }

    /// The account of the probe as JSON.
    fn ledger(&self, python: Python<'_>) -> PyResult<String> {
        require_own_process(&self.0.device, self.0.process)?;
        let ledger = python.detach(|| self.0.control.as_ref().map(|control| control.ledger()));
        let text = serde_json::to_string(&ledger);
        text.map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// Ends the source; the flows so far follow.
    fn stop(&self) -> PyResult<()> {
        require_own_process(&self.0.device, self.0.process)?;
        self.0.stop();
        Ok(())
    }

    /// Ends the probe.
    fn close(&self, python: Python<'_>) -> PyResult<()> {
        require_own_process(&self.0.device, self.0.process)?;
        python.detach(|| self.0.close());
        Ok(())
    }
}
