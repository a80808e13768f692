// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap._native`: captures and their packets for the Python package `ringtap`, whose Python part is in `python/`.
//!
//! Invariants
//! - No lock of a capture is taken with the interpreter's lock held, and no wait holds either.
//! - Memory that Python sees belongs to a batch, which lives as long as the last view of it.

mod arrow;
mod batch;
mod capture;
mod errors;
mod find;
mod flows;
mod hub;
mod inject;
mod interpreter;
mod packet;
mod shared_capture;
mod slots;
mod source;
mod stream;
mod waiting;

use pyo3::prelude::*;

#[pymodule(name = "_native")]
fn native(python: Python<'_>, module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::require_main(python)?;
    module.add_class::<capture::NativeCapture>()?;
    module.add_class::<batch::NativeBatch>()?;
    module.add_class::<packet::PythonPacket>()?;
    module.add_class::<inject::NativeInjector>()?;
    module.add_class::<arrow::ArrowTable>()?;
    module.add_class::<find::NativeSearch>()?;
    module.add_class::<flows::NativeFlows>()?;
    module.add_class::<slots::SlotBytes>()?;
    module.add_class::<stream::ArrowStream>()?;
    module.add_function(wrap_pyfunction!(capture::open, module)?)?;
    module.add_function(wrap_pyfunction!(find::find, module)?)?;
    module.add_function(wrap_pyfunction!(flows::flows, module)?)?;
    module.add_function(wrap_pyfunction!(hub::explain_hub, module)?)?;
    module.add_function(wrap_pyfunction!(hub::hub_status, module)?)?;
    errors::add(python, module)
}
