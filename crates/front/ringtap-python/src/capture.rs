// SPDX-License-Identifier: MIT OR Apache-2.0
//! A capture: opening, batches, counters, flow rules, recording.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use ringtap::{Capture, Error, FlowAction, FlowRule, FlowSelector, GroupName, OpenOptions};
use ringtap_device::cut_off;
use ringtap_explain::report;
use ringtap_record::{RecordExt as _, RecordOptions, StopAt};

use crate::batch::{ColumnChoice, NativeBatch};
use crate::errors::{RecordError, RuleError, exception};
use crate::shared_capture::SharedCapture;
use crate::source::{TakeError, take_batch};
use crate::stream::{ArrowStream, PacketStream, StreamChoice};
use crate::waiting::{LOOK, from_seconds, while_looking_for_signals};

/// A capture, and what Python asks of it.
#[pyclass(name = "NativeCapture", module = "ringtap", frozen)]
pub(crate) struct NativeCapture(Arc<SharedCapture>);

impl NativeCapture {
    /// Calls `call` with the open capture, without the interpreter's lock.
    fn with<T: Send>(
        &self,
        python: Python<'_>,
        call: impl FnOnce(&mut Capture) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let called = python.detach(|| {
            self.0
                .with(|capture| call(capture).map_err(TakeError::from))
        });
        Ok(called?)
    }

    fn json<T: Send + serde::Serialize>(
        &self,
        python: Python<'_>,
        call: impl FnOnce(&mut Capture) -> Result<T, Error> + Send,
    ) -> PyResult<String> {
        let value = self.with(python, call)?;
        serde_json::to_string(&value).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }
}

/// Opens a device or a group of a hub.
#[pyfunction]
#[pyo3(signature = (device, *, filter="", snap_length=None, name=None, credit=None, in_order=None, private=false, socket=None, watermark=None, cutoff=None, marks=None))]
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
    cutoff: Option<&str>,
    marks: Option<&str>,
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
        options = options.in_order(from_seconds(window)?);
    }
    if let Some(path) = socket {
        options = options.socket(path);
    }
    if let Some((packets, limit)) = watermark {
        options = options.watermark(packets, from_seconds(limit)?);
    }
    if let Some(text) = cutoff {
        let cut = cut_off(text).map_err(|error| RuleError::new_err(error.to_string()))?;
        options = options.cutoff(cut);
    }
    if let Some(name) = marks {
        options = options.marks(group_name(name)?);
    }
    let opened = python.detach(|| options.open(device));
    let capture = opened.map_err(|error| exception(&error))?;
    Ok(NativeCapture(Arc::new(SharedCapture::new(capture))))
}

/// A flow by its text.
fn flow_of(text: &str) -> PyResult<FlowSelector> {
    let flow = text.parse::<FlowSelector>();
    let flow = flow.map_err(|error| RuleError::new_err(error.to_string()))?;
    if let FlowSelector::Flow(flow) = &flow
        && flow.lacks_port()
    {
        let text = format!("{flow}: both ends of this protocol have ports: write 10.0.0.1:80");
        return Err(RuleError::new_err(text));
    }
    Ok(flow)
}

fn group_name(name: &str) -> PyResult<GroupName> {
    let name = name.parse::<GroupName>();
    name.map_err(|error| RuleError::new_err(error.to_string()))
}

/// The action that these keywords name.
fn action(
    cutoff: Option<&str>,
    sample: Option<u64>,
    mirror: Option<&str>,
    forward: Option<&str>,
) -> PyResult<FlowAction> {
    let refused = |error: &dyn std::fmt::Display| RuleError::new_err(error.to_string());
    Ok(match (cutoff, sample, mirror, forward) {
        (None, None, None, None) => FlowAction::Ignore,
        (Some(cut), None, None, None) => {
            FlowAction::CutOff(cut_off(cut).map_err(|error| refused(&error))?)
        }
        (None, Some(one_in), None, None) => FlowAction::Sample { one_in },
        (None, None, Some(name), None) => FlowAction::Mirror {
            group: group_name(name)?,
        },
        (None, None, None, Some(name)) => FlowAction::Forward {
            group: group_name(name)?,
        },
        _ => {
            let text = "a rule has one action: cutoff, sample, mirror or forward";
            return Err(RuleError::new_err(text));
        }
    })
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
        take_batch(python, &*self.0, packets, timeout)
    }

    /// The packets as a stream of record batches.
    fn stream(&self, options: StreamChoice, columns: ColumnChoice) -> PyResult<ArrowStream> {
        self.0.require_own_process()?;
        let source = Arc::clone(&self.0);
        Ok(PacketStream::python(source, options.with(&columns)?))
    }

    /// The counters so far, as `ringtap count --json` prints them.
    fn counters(&self, python: Python<'_>) -> PyResult<String> {
        let counters = self.with(python, |capture| capture.counters())?;
        let line = report::json(self.0.device(), "python", None, &counters);
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
        self.json(python, |capture| Ok(capture.facts().clone()))
    }

    /// Changes the filter while packets arrive.
    fn set_filter(&self, python: Python<'_>, filter: &str) -> PyResult<()> {
        self.with(python, |capture| capture.set_filter(filter))
    }

    /// Sets a rule for a flow, or for those of a pattern.
    #[pyo3(signature = (flow, *, cutoff=None, sample=None, mirror=None, forward=None, seconds=None))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's keywords")]
    fn flow_rule(
        &self,
        python: Python<'_>,
        flow: &str,
        cutoff: Option<&str>,
        sample: Option<u64>,
        mirror: Option<&str>,
        forward: Option<&str>,
        seconds: Option<f64>,
    ) -> PyResult<()> {
        let lasts = seconds.map(from_seconds).transpose()?;
        let rule = FlowRule {
            flow: flow_of(flow)?,
            action: action(cutoff, sample, mirror, forward)?,
            lasts_ns: lasts.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        };
        self.with(python, |capture| capture.flow_rule(rule))
    }

    /// Removes the rule for a flow or a pattern; false if there is none.
    fn remove_flow_rule(&self, python: Python<'_>, flow: &str) -> PyResult<bool> {
        let flow = flow_of(flow)?;
        self.with(python, |capture| capture.remove_flow_rule(flow))
    }

    /// The rules in force, as JSON.
    fn flow_rules(&self, python: Python<'_>) -> PyResult<String> {
        self.json(python, |capture| Ok(capture.rules().list()?))
    }

    /// Ends of flows since the last call as JSON, and how many were lost; waits up to `timeout` seconds for the first.
    fn flow_events(&self, python: Python<'_>, timeout: f64) -> PyResult<(String, u64)> {
        let deadline = Instant::now().checked_add(from_seconds(timeout)?);
        loop {
            // A wait with the capture's lock would keep packets from another thread.
            let found = self.with(python, |capture| capture.flow_events(Duration::ZERO))?;
            python.check_signals()?;
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if !found.events.is_empty() || found.lost > 0 || left == Some(Duration::ZERO) {
                let events = serde_json::to_string(&found.events);
                let events = events.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
                return Ok((events, found.lost));
            }
            python.detach(|| std::thread::sleep(LOOK.min(left.unwrap_or(LOOK))));
        }
    }

    /// Ends the source, from any thread; what is in the pool can still be read.
    fn stop(&self) -> PyResult<()> {
        self.0.require_own_process()?;
        self.0.stop();
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
        self.0.require_own_process()?;
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
                duration: duration.map(from_seconds).transpose()?,
                ..StopAt::default()
            },
            ..RecordOptions::to_file(file)
        };
        options
            .check()
            .map_err(|error| refused(error.to_string()))?;
        let record = || {
            self.0.with(|capture| {
                let recorded = capture.record(&options);
                Ok::<_, TakeError>(recorded.map_err(|error| error.to_string()))
            })
        };
        let recorded = while_looking_for_signals(python, record, || self.0.stop())??;
        let files = recorded.map_err(refused)?.files;
        Ok((files.packets, files.files, files.file))
    }

    /// Ends the capture; batches that are kept stay readable.
    fn close(&self, python: Python<'_>) -> PyResult<()> {
        self.0.require_own_process()?;
        python.detach(|| self.0.close());
        Ok(())
    }
}
