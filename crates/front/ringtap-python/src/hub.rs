// SPDX-License-Identifier: MIT OR Apache-2.0
//! Status of a running hub, and where it lost packets.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use ringtap_client::{Connection, default_socket};

use crate::errors::HubError;
use crate::waiting::from_seconds;

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
    let interval = from_seconds(interval)?;
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
