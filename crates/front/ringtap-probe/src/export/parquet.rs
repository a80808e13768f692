// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records in Parquet files, for DuckDB, Polars and Spark; `docs/probe-results.md` states the schema.
//!
//! Invariants
//! - A file has its final name only when it is complete; before, its name begins with a dot.
//! - At most [`ROW_GROUP`] rows of each table are in the memory of each thread.

mod rows;

use std::path::PathBuf;
use std::time::Duration;

use super::columns::{ValueRow, dns_columns, flow_columns, value_columns};
use super::{ExportError, Exporter};
use crate::record::{DnsRecord, FlowRecord, Measurement, Record};
use rows::RowGroups;

/// Rows that are written together.
const ROW_GROUP: usize = 16_384;

/// Writes `FOLDER/flows/*.parquet`, `FOLDER/dns/*.parquet` and `FOLDER/measurements/*.parquet`.
pub struct ParquetExporter {
    folder: PathBuf,
    rotate: Duration,
    flows: RowGroups<FlowRecord>,
    dns: RowGroups<DnsRecord>,
    values: RowGroups<ValueRow>,
    failure: Option<ExportError>,
}

impl ParquetExporter {
    /// An exporter that begins a new file after `rotate`; makes the folder if it is missing.
    ///
    /// # Errors
    ///
    /// The folder cannot be made.
    pub fn new(folder: PathBuf, rotate: Duration) -> Result<Self, ExportError> {
        let flows = RowGroups::new(folder.join("flows"), flow_columns(), rotate)?;
        let dns = RowGroups::new(folder.join("dns"), dns_columns(), rotate)?;
        let values = folder.join("measurements");
        let values = RowGroups::new(values, value_columns(), rotate)?;
        Ok(ParquetExporter {
            folder,
            rotate,
            flows,
            dns,
            values,
            failure: None,
        })
    }

    fn push_values(&mut self, measurement: &Measurement) -> Result<(), ExportError> {
        let last = measurement.values.len().saturating_sub(1);
        let mut outcome = Ok(());
        for (at, (name, value)) in measurement.values.iter().enumerate() {
            let row = ValueRow {
                measurement: Measurement {
                    values: Vec::new(),
                    ..Measurement::clone(measurement)
                },
                name,
                value: *value,
            };
            // The record counts with its last value.
            outcome = outcome.and(self.values.push(row, u64::from(at == last)));
        }
        outcome
    }
}

impl Exporter for ParquetExporter {
    fn name(&self) -> String {
        format!("parquet {}", self.folder.display())
    }

    fn write(&mut self, records: &[Record]) -> Result<(), ExportError> {
        let mut outcome = Ok(());
        for record in records {
            let taken = match record {
                Record::Flow(flow) => self.flows.push(FlowRecord::clone(flow), 1),
                Record::Dns(dns) => self.dns.push(DnsRecord::clone(dns), 1),
                Record::Measurement(measurement) => self.push_values(measurement),
            };
            outcome = outcome.and(taken);
        }
        // The loss is counted by `lost`; with an error, the queue would count the records again.
        self.failure = outcome.err();
        Ok(())
    }

    fn tick(&mut self) -> Result<(), ExportError> {
        let failure = self.failure.take().map_or(Ok(()), Err);
        let flows = self.flows.tick();
        let dns = self.dns.tick();
        self.values.tick().and(flows).and(dns).and(failure)
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        let flows = self.flows.finish();
        let dns = self.dns.finish();
        let failure = self.failure.take().map_or(Ok(()), Err);
        self.values.finish().and(flows).and(dns).and(failure)
    }

    fn helper(&self) -> Option<Box<dyn Exporter>> {
        let helper = ParquetExporter::new(self.folder.clone(), self.rotate);
        Some(Box::new(helper.ok()?))
    }

    fn lost(&self) -> u64 {
        self.flows.lost() + self.dns.lost() + self.values.lost()
    }
}
