// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which interpreter of the process imports the package.
#![allow(unsafe_code, reason = "Python tells it to C only")]

use pyo3::exceptions::PyImportError;
use pyo3::{PyResult, Python, ffi};

/// Refuses an interpreter that is not the process's first one: classes and locks are one for all.
pub(crate) fn require_main(_python: Python<'_>) -> PyResult<()> {
    // SAFETY: this thread has the interpreter's lock.
    let this = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: the interpreter that runs this call.
    let number = unsafe { ffi::PyInterpreterState_GetID(this) };
    if number == 0 {
        Ok(())
    } else {
        Err(PyImportError::new_err(
            "ringtap does not support subinterpreters: import it in the main interpreter",
        ))
    }
}
