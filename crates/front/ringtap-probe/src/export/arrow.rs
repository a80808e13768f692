// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow records as Arrow record batches, for a program that runs the probe.
//!
//! Invariants
//! - Names, types and order of the columns are those of the Parquet files.
//! - At most [`ROWS`] rows, and the record batches that wait in the channel, are in memory.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};

use super::columns::{TableColumn, Values, flow_columns, microseconds, signed};
use super::{ExportError, Exporter};
use crate::record::{FlowRecord, Record};

/// Most rows of a record batch.
const ROWS: usize = 16_384;
/// Record batches that wait for the program.
const BATCHES: usize = 2;

/// Sends flow records to a channel: about each second, and once they are many.
pub struct FlowTables {
    columns: Vec<TableColumn<FlowRecord>>,
    schema: SchemaRef,
    rows: Vec<FlowRecord>,
    lost: u64,
    to: SyncSender<RecordBatch>,
}

impl FlowTables {
    /// An exporter, and the channel that it writes to. While the channel is full, the exporter waits; once its
    /// receiver is gone, the records are lost.
    #[must_use]
    pub fn new() -> (Self, Receiver<RecordBatch>) {
        let (to, tables) = sync_channel(BATCHES);
        let exporter = FlowTables {
            columns: flow_columns(),
            schema: FlowTables::schema(),
            rows: Vec::new(),
            lost: 0,
            to,
        };
        (exporter, tables)
    }

    /// The columns with their types.
    #[must_use]
    pub fn schema() -> SchemaRef {
        let columns = flow_columns();
        let fields = columns.iter().map(|TableColumn { name, values }| {
            let (kind, can_be_absent) = match values {
                Values::Time(_) => {
                    let unit = TimeUnit::Microsecond;
                    (DataType::Timestamp(unit, Some("UTC".into())), true)
                }
                Values::Number(_) => (DataType::Int64, true),
                Values::Fraction(_) => (DataType::Float64, false),
                Values::Text(_) => (DataType::Utf8, true),
            };
            Field::new(name, kind, can_be_absent)
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn send(&mut self) -> Result<(), ExportError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let table = self.table().map_err(|error| error.to_string());
        let sent = table.and_then(|table| {
            let gone = |_| "the program takes no more tables".to_owned();
            self.to.send(table).map_err(gone)
        });
        if sent.is_err() {
            self.lost += u64::try_from(self.rows.len()).unwrap_or(u64::MAX);
        }
        self.rows.clear();
        sent.map_err(ExportError)
    }

    fn table(&self) -> Result<RecordBatch, ArrowError> {
        let columns = self.columns.iter();
        let columns = columns.map(|column| array(&column.values, &self.rows));
        RecordBatch::try_new(Arc::clone(&self.schema), columns.collect())
    }
}

fn array(values: &Values<FlowRecord>, rows: &[FlowRecord]) -> ArrayRef {
    match values {
        Values::Time(of) => {
            let times = rows.iter().map(|row| of(row).map(microseconds));
            Arc::new(TimestampMicrosecondArray::from_iter(times).with_timezone("UTC"))
        }
        Values::Number(of) => {
            let numbers = rows.iter().map(|row| of(row).map(signed));
            Arc::new(Int64Array::from_iter(numbers))
        }
        Values::Fraction(of) => Arc::new(Float64Array::from_iter_values(rows.iter().map(of))),
        Values::Text(of) => {
            let (mut texts, mut text) = (StringBuilder::new(), String::new());
            for row in rows {
                text.clear();
                let is_there = of(row, &mut text);
                texts.append_option(is_there.then_some(&text));
            }
            Arc::new(texts.finish())
        }
    }
}

impl Exporter for FlowTables {
    fn name(&self) -> String {
        "tables".to_owned()
    }

    fn write(&mut self, records: &[Record]) -> Result<(), ExportError> {
        for record in records {
            if let Record::Flow(flow) = record {
                self.rows.push(FlowRecord::clone(flow));
            }
            if self.rows.len() == ROWS {
                // With an error, the queue would count the records again.
                let _counted_as_lost = self.send();
            }
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), ExportError> {
        self.send()
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        self.send()
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}
