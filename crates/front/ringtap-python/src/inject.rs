// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends packets of Python out of an interface.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use ringtap_send::{PacketInjector, Qdisc};

use crate::errors;
use crate::waiting::while_looking_for_signals;

/// Sends packets out of one interface.
#[pyclass(name = "Injector", module = "ringtap", frozen)]
pub(crate) struct NativeInjector(Mutex<PacketInjector>);

#[pymethods]
impl NativeInjector {
    #[new]
    fn new(python: Python<'_>, interface: &str, qdisc_bypass: bool) -> PyResult<Self> {
        let qdisc = if qdisc_bypass {
            Qdisc::Bypass
        } else {
            Qdisc::Use
        };
        let opened = python.detach(|| PacketInjector::open(interface, qdisc));
        let injector = opened.map_err(|error| errors::SendError::new_err(error.to_string()))?;
        Ok(NativeInjector(Mutex::new(injector)))
    }

    /// Sends packets; waits for room.
    fn send(&self, python: Python<'_>, packets: Vec<PyBackedBytes>) -> PyResult<()> {
        let stop = AtomicBool::new(false);
        let send = || {
            let mut injector = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            injector.send(packets.iter().map(|packet| &packet[..]), &stop)
        };
        let sent = while_looking_for_signals(python, send, || stop.store(true, Relaxed))?;
        sent.map_err(|error| errors::SendError::new_err(error.to_string()))
    }

    /// The counters as JSON, and the reason of the last refusal.
    fn counters(&self, python: Python<'_>) -> PyResult<(String, Option<String>)> {
        let counters = python.detach(|| {
            let injector = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            injector.counters()
        });
        let text = serde_json::to_string(&counters);
        let text = text.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok((text, counters.refusal()))
    }
}
