// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of record batches for other programs, through Arrow's C stream interface in capsules.
//!
//! Invariants
//! - A stream never takes the interpreter's lock: threads of DuckDB or polars read it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use ringtap_columns::{ColumnOptions, PacketColumns};

use crate::arrow::refused;
use crate::batch::ColumnChoice;
use crate::source::{PacketSource, take};
use crate::waiting::from_seconds;

/// Record batches that any program with Arrow's PyCapsule interface reads: DuckDB, polars, pyarrow, pandas.
///
/// Streams made of one object share its packets: each goes to one of them.
#[pyclass(name = "Stream", module = "ringtap", frozen)]
pub(crate) struct ArrowStream {
    schema: SchemaRef,
    open: Box<dyn Fn() -> Box<dyn RecordBatchReader + Send> + Send + Sync>,
}

impl ArrowStream {
    pub(crate) fn new<R: RecordBatchReader + Send + 'static>(
        schema: SchemaRef,
        open: impl Fn() -> R + Send + Sync + 'static,
    ) -> Self {
        ArrowStream {
            schema,
            open: Box::new(move || Box::new(open())),
        }
    }
}

#[pymethods]
impl ArrowStream {
    fn __arrow_c_schema__<'py>(&self, python: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.schema.as_ref()).map_err(refused)?;
        PyCapsule::new_with_value(python, schema, c"arrow_schema")
    }

    /// The schema that is asked for is ignored, as the protocol allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        python: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ignored = requested_schema;
        let stream = FFI_ArrowArrayStream::new((self.open)());
        PyCapsule::new_with_value(python, stream, c"arrow_array_stream")
    }
}

/// How a stream takes packets, and when it ends, as a dictionary of Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct StreamChoice {
    packets: usize,
    timeout: Option<f64>,
    limit: Option<u64>,
    duration: Option<f64>,
}

/// The same, checked.
#[derive(Clone, Copy)]
pub(crate) struct StreamOptions {
    columns: ColumnOptions,
    /// Packets of a record batch, about.
    packets: usize,
    /// Longest wait for a record batch, which may then be empty.
    timeout: Option<Duration>,
    /// Packets after which the stream ends.
    limit: Option<u64>,
    /// Time after which it ends, from its first record batch on.
    duration: Option<Duration>,
}

impl StreamChoice {
    pub(crate) fn with(&self, columns: &ColumnChoice) -> PyResult<StreamOptions> {
        Ok(StreamOptions {
            columns: columns.options(),
            packets: self.packets,
            timeout: self.timeout.map(from_seconds).transpose()?,
            limit: self.limit,
            duration: self.duration.map(from_seconds).transpose()?,
        })
    }
}

/// Packets of a source as record batches.
pub(crate) struct PacketStream {
    source: Arc<dyn PacketSource>,
    options: StreamOptions,
    schema: SchemaRef,
    left: u64,
    /// Begins with the first record batch.
    until: Option<Instant>,
    has_begun: bool,
}

impl PacketStream {
    /// An object for Python, whose streams read from `source`.
    pub(crate) fn python(source: Arc<dyn PacketSource>, options: StreamOptions) -> ArrowStream {
        let schema = options.columns.schema();
        let own = Arc::clone(&schema);
        ArrowStream::new(schema, move || PacketStream {
            source: Arc::clone(&source),
            options,
            schema: Arc::clone(&own),
            left: options.limit.unwrap_or(u64::MAX),
            until: None,
            has_begun: false,
        })
    }

    fn next_table(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let now = Instant::now();
        if !self.has_begun {
            self.has_begun = true;
            let duration = self.options.duration;
            self.until = duration.and_then(|duration| now.checked_add(duration));
        }
        let rest = self.until.map(|until| until.saturating_duration_since(now));
        if self.left == 0 || rest == Some(Duration::ZERO) {
            return Ok(None);
        }
        let timeout = match (self.options.timeout, rest) {
            (Some(timeout), Some(rest)) => Some(timeout.min(rest)),
            (timeout, rest) => timeout.or(rest),
        };
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let packets = Some(self.options.packets.min(left));
        let parts = take(packets, timeout, |taking, until| {
            self.source.step(taking, until)
        });
        let parts = parts.map_err(|error| ArrowError::ExternalError(error.text().into()))?;
        let Some(parts) = parts else {
            return Ok(None);
        };
        let mut columns = PacketColumns::new(self.options.columns, self.source.links());
        columns.reserve(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| columns.extend(part));
        let table = columns.finish()?;
        let table = table.slice(0, table.num_rows().min(left));
        self.left -= u64::try_from(table.num_rows()).unwrap_or(self.left);
        Ok(Some(table))
    }
}

impl Iterator for PacketStream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_table().transpose()
    }
}

impl RecordBatchReader for PacketStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
