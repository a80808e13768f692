// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exceptions: one class for each kind of error, all below `ringtap.Error`.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use ringtap_client::ReceiveError;

create_exception!(ringtap, Error, PyException, "A call of ringtap failed.");
create_exception!(
    ringtap,
    DeviceError,
    Error,
    "The device's text is not valid."
);
create_exception!(ringtap, OpenError, Error, "The device cannot be captured.");
create_exception!(ringtap, FilterError, Error, "The filter is not valid.");
create_exception!(
    ringtap,
    HubError,
    Error,
    "The hub cannot be reached, or refused."
);
create_exception!(
    ringtap,
    HubLeftError,
    HubError,
    "The hub ended during the capture."
);
create_exception!(ringtap, SourceError, Error, "The source failed.");
create_exception!(
    ringtap,
    InterfaceRemovedError,
    SourceError,
    "The interface was removed."
);
create_exception!(ringtap, ClosedError, Error, "The capture is closed.");
create_exception!(
    ringtap,
    ForkError,
    Error,
    "The capture belongs to the process that opened it."
);
create_exception!(ringtap, RecordError, Error, "Packets cannot be recorded.");
create_exception!(
    ringtap,
    RuleError,
    Error,
    "The flow rule or cut-off is not valid."
);
create_exception!(ringtap, SendError, Error, "Packets cannot be sent.");

pub(crate) fn add(python: Python<'_>, module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", python.get_type::<Error>())?;
    module.add("DeviceError", python.get_type::<DeviceError>())?;
    module.add("OpenError", python.get_type::<OpenError>())?;
    module.add("FilterError", python.get_type::<FilterError>())?;
    module.add("HubError", python.get_type::<HubError>())?;
    module.add("HubLeftError", python.get_type::<HubLeftError>())?;
    module.add("SourceError", python.get_type::<SourceError>())?;
    let removed = python.get_type::<InterfaceRemovedError>();
    module.add("InterfaceRemovedError", removed)?;
    module.add("ClosedError", python.get_type::<ClosedError>())?;
    module.add("ForkError", python.get_type::<ForkError>())?;
    module.add("RecordError", python.get_type::<RecordError>())?;
    module.add("RuleError", python.get_type::<RuleError>())?;
    module.add("SendError", python.get_type::<SendError>())
}

/// The exception of an error.
pub(crate) fn exception(error: &ringtap::Error) -> PyErr {
    use ringtap::Error as Kind;
    let text = error.to_string();
    match error {
        Kind::Device(_) => DeviceError::new_err(text),
        Kind::Open(_) => OpenError::new_err(text),
        Kind::Filter(_) => FilterError::new_err(text),
        Kind::Receive(ReceiveError::HubLeft | ReceiveError::AgentLeft) => {
            HubLeftError::new_err(text)
        }
        Kind::Control(error) if error.is_gone() => HubLeftError::new_err(text),
        Kind::Connect(_) | Kind::Hub(_) | Kind::Listen(_) | Kind::Attach(_) | Kind::Control(_) => {
            HubError::new_err(text)
        }
        Kind::InterfaceRemoved(_) => InterfaceRemovedError::new_err(text),
        Kind::SourceFailed(_) => SourceError::new_err(text),
        _ => Error::new_err(text),
    }
}
