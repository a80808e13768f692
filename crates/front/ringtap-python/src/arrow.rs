// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record batches for other programs through Arrow's C data interface, in capsules.

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow_array::{Array as _, RecordBatch, StructArray};
use arrow_schema::ArrowError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Columns of packets, which pyarrow, polars, pandas and DuckDB take.
#[pyclass(name = "Table", module = "ringtap", frozen)]
pub(crate) struct ArrowTable(RecordBatch);

impl ArrowTable {
    pub(crate) fn new(table: Result<RecordBatch, ArrowError>) -> PyResult<Self> {
        table.map(ArrowTable).map_err(refused)
    }
}

pub(crate) fn refused(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl ArrowTable {
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __arrow_c_schema__<'py>(&self, python: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.0.schema().as_ref()).map_err(refused)?;
        PyCapsule::new_with_value(python, schema, c"arrow_schema")
    }

    /// The schema that is asked for is ignored, as the protocol allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        python: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ignored = requested_schema;
        let columns = StructArray::from(self.0.clone());
        let (array, _): (FFI_ArrowArray, _) = to_ffi(&columns.to_data()).map_err(refused)?;
        let array = PyCapsule::new_with_value(python, array, c"arrow_array")?;
        Ok((self.__arrow_c_schema__(python)?, array))
    }
}
