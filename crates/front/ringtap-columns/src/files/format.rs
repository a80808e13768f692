// SPDX-License-Identifier: MIT OR Apache-2.0
//! Formats of files: Parquet, Arrow and CSV.

use std::fs::File;
use std::io::BufWriter;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, TimestampNanosecondType};
use arrow_array::{RecordBatch, TimestampMicrosecondArray};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use flate2::Compression;
use flate2::write::GzEncoder;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression as ParquetCompression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::TableError;

/// Rows that Parquet has together.
const ROW_GROUP: usize = 131_072;
/// Columns whose values repeat so seldom that a dictionary costs more than it saves.
const UNIQUE: [&str; 3] = ["time", "time_ns", "hash"];

/// Format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    /// Apache Parquet, compressed with Snappy.
    Parquet,
    /// Arrow's IPC file format, compressed with Zstandard.
    Arrow,
    /// Comma-separated values with a header line, compressed with gzip.
    Csv,
}

impl FromStr for TableFormat {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, &'static str> {
        match word {
            "parquet" => Ok(TableFormat::Parquet),
            "arrow" => Ok(TableFormat::Arrow),
            "csv" => Ok(TableFormat::Csv),
            _ => Err("expected parquet, arrow or csv"),
        }
    }
}

impl TableFormat {
    pub(super) fn extension(self) -> &'static str {
        match self {
            TableFormat::Parquet => "parquet",
            TableFormat::Arrow => "arrow",
            TableFormat::Csv => "csv.gz",
        }
    }

    /// The columns in the file. In Parquet, `time` has microseconds, because Spark reads no nanoseconds, and `time_ns`
    /// has nanoseconds since 1970 as a number.
    pub(super) fn schema(self, schema: &SchemaRef) -> SchemaRef {
        if self != TableFormat::Parquet {
            return Arc::clone(schema);
        }
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let times = [
            Field::new("time", utc, false),
            Field::new("time_ns", DataType::Int64, false),
        ];
        let rest = schema.fields().iter().skip(1).cloned();
        let fields: Vec<_> = times.into_iter().map(Arc::new).chain(rest).collect();
        Arc::new(Schema::new(fields))
    }

    /// The rows with the columns of the file.
    pub(super) fn table(
        self,
        table: &RecordBatch,
        schema: &SchemaRef,
    ) -> Result<RecordBatch, TableError> {
        if self != TableFormat::Parquet {
            return Ok(table.clone());
        }
        let times = table.column(0).as_primitive::<TimestampNanosecondType>();
        let microseconds = times.values().iter().map(|time| time.div_euclid(1000));
        let microseconds =
            TimestampMicrosecondArray::from_iter_values(microseconds).with_timezone("UTC");
        let mut columns = table.columns().to_vec();
        columns[0] = Arc::new(times.reinterpret_cast::<Int64Type>());
        columns.insert(0, Arc::new(microseconds));
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}

/// Writes the rows of one file.
pub(super) enum TableWriter {
    Parquet(Box<ArrowWriter<File>>),
    Arrow(Box<FileWriter<BufWriter<File>>>),
    Csv(Box<arrow_csv::Writer<GzEncoder<File>>>),
}

impl TableWriter {
    pub(super) fn new(
        format: TableFormat,
        file: File,
        schema: &SchemaRef,
    ) -> Result<Self, TableError> {
        Ok(match format {
            TableFormat::Parquet => {
                let properties = parquet_properties();
                let writer = ArrowWriter::try_new(file, Arc::clone(schema), Some(properties))?;
                TableWriter::Parquet(Box::new(writer))
            }
            TableFormat::Arrow => {
                let options = IpcWriteOptions::default();
                let options = options.try_with_compression(Some(CompressionType::ZSTD))?;
                let file = BufWriter::new(file);
                let writer = FileWriter::try_new_with_options(file, schema, options)?;
                TableWriter::Arrow(Box::new(writer))
            }
            TableFormat::Csv => {
                let packed = GzEncoder::new(file, Compression::fast());
                TableWriter::Csv(Box::new(arrow_csv::Writer::new(packed)))
            }
        })
    }

    pub(super) fn write(&mut self, table: &RecordBatch) -> Result<(), TableError> {
        match self {
            TableWriter::Parquet(writer) => writer.write(table)?,
            TableWriter::Arrow(writer) => writer.write(table)?,
            TableWriter::Csv(writer) => writer.write(table)?,
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), TableError> {
        match self {
            TableWriter::Parquet(writer) => {
                let _metadata = writer.close()?;
            }
            TableWriter::Arrow(mut writer) => writer.finish()?,
            TableWriter::Csv(writer) => {
                let file = writer.into_inner().finish();
                let _closed = file.map_err(arrow_schema::ArrowError::from)?;
            }
        }
        Ok(())
    }
}

fn parquet_properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(ParquetCompression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for name in UNIQUE {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(name), false);
    }
    properties.build()
}
