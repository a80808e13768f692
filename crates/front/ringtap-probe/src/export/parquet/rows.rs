// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of one table in memory, and the file that they go to.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ::parquet::basic::Compression;
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties};
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::parser::parse_message_type;
use ::parquet::schema::types::{ColumnPath, TypePtr};

use super::ROW_GROUP;
use crate::export::ExportError;
use crate::export::columns::{TableColumn, Values, microseconds, signed};

/// Files that this process has begun: part of their names.
static FILES: AtomicU64 = AtomicU64::new(0);

/// A table that is written as a series of files.
pub(super) struct RowGroups<R> {
    folder: PathBuf,
    columns: Vec<TableColumn<R>>,
    schema: TypePtr,
    rotate: Duration,
    rows: Vec<R>,
    /// Time of the first row that is not in a complete file.
    begun: Option<Instant>,
    /// Records that are not in a complete file.
    records: u64,
    file: Option<UnfinishedFile>,
    lost: u64,
}

/// A file that is not complete.
struct UnfinishedFile {
    writer: SerializedFileWriter<File>,
    hidden: PathBuf,
    complete: PathBuf,
}

impl<R> RowGroups<R> {
    pub(super) fn new(
        folder: PathBuf,
        columns: Vec<TableColumn<R>>,
        rotate: Duration,
    ) -> Result<Self, ExportError> {
        let fields: String = columns.iter().map(TableColumn::schema).collect();
        let schema = parse_message_type(&format!("message record {{ {fields} }}"));
        fs::create_dir_all(&folder)
            .map_err(|error| ExportError(format!("{}: {error}", folder.display())))?;
        Ok(RowGroups {
            folder,
            columns,
            schema: Arc::new(schema?),
            rotate,
            rows: Vec::new(),
            begun: None,
            records: 0,
            file: None,
            lost: 0,
        })
    }

    /// Records that were taken and will not be in a file.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes a row that completes this many records; the rows so far are written when they are many.
    pub(super) fn push(&mut self, row: R, records: u64) -> Result<(), ExportError> {
        self.begun.get_or_insert_with(Instant::now);
        self.rows.push(row);
        self.records += records;
        if self.rows.len() < ROW_GROUP {
            return Ok(());
        }
        let written = self.write_rows();
        self.or_give_up(written)
    }

    /// Completes the file when its time is over.
    pub(super) fn tick(&mut self) -> Result<(), ExportError> {
        if self
            .begun
            .is_some_and(|begun| begun.elapsed() >= self.rotate)
        {
            self.finish()
        } else {
            Ok(())
        }
    }

    /// Writes the rows and completes the file.
    pub(super) fn finish(&mut self) -> Result<(), ExportError> {
        let written = self.write_rows().and_then(|()| self.close());
        self.or_give_up(written)
    }

    /// Gives up the file and the rows after a failure, and counts their records.
    fn or_give_up(&mut self, outcome: Result<(), ParquetError>) -> Result<(), ExportError> {
        let Err(error) = outcome else { return Ok(()) };
        if let Some(file) = self.file.take() {
            let _may_be_gone = fs::remove_file(file.hidden);
        }
        self.rows.clear();
        self.begun = None;
        self.lost += std::mem::take(&mut self.records);
        Err(ExportError(format!("{}: {error}", self.folder.display())))
    }

    fn write_rows(&mut self) -> Result<(), ParquetError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.open()?,
        };
        let written = write_group(&mut file.writer, &self.columns, &self.rows);
        self.file = Some(file);
        self.rows.clear();
        written
    }

    fn open(&mut self) -> Result<UnfinishedFile, ParquetError> {
        let number = FILES.fetch_add(1, Relaxed);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        // No two probes and no two runs of one write the same file.
        let name = format!("{}-{}-{number}.parquet", now.as_secs(), std::process::id(),);
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk);
        for column in self.columns.iter().filter(|column| !column.repeats()) {
            let name = ColumnPath::from(column.name.as_str());
            properties = properties.set_column_dictionary_enabled(name, false);
        }
        let hidden = self.folder.join(format!(".{name}"));
        let file = File::create_new(&hidden)?;
        Ok(UnfinishedFile {
            writer: SerializedFileWriter::new(
                file,
                Arc::clone(&self.schema),
                Arc::new(properties.build()),
            )?,
            hidden,
            complete: self.folder.join(name),
        })
    }

    fn close(&mut self) -> Result<(), ParquetError> {
        if let Some(mut file) = self.file.take() {
            let closed = file
                .writer
                .finish()
                .and_then(|_| Ok(fs::rename(&file.hidden, &file.complete)?));
            if closed.is_err() {
                self.file = Some(file);
            }
            closed?;
        }
        self.begun = None;
        self.records = 0;
        Ok(())
    }
}

impl<R> TableColumn<R> {
    /// The column in the language of Parquet's schemas.
    fn schema(&self) -> String {
        let name = &self.name;
        match self.values {
            Values::Time(_) => format!("optional int64 {name} (TIMESTAMP(MICROS,true));"),
            Values::Number(_) => format!("optional int64 {name};"),
            Values::Fraction(_) => format!("required double {name};"),
            Values::Text(_) => format!("optional binary {name} (UTF8);"),
        }
    }

    /// Whether values repeat so often that a dictionary saves more than its time costs.
    fn repeats(&self) -> bool {
        let differs = ["_ns", "bytes", "community_id"]
            .iter()
            .any(|end| self.name.ends_with(end));
        !differs && !matches!(self.values, Values::Time(_) | Values::Fraction(_))
    }
}

fn write_group<R>(
    writer: &mut SerializedFileWriter<File>,
    columns: &[TableColumn<R>],
    rows: &[R],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for TableColumn { values, .. } in columns {
        let Some(mut column) = group.next_column()? else {
            break;
        };
        match values {
            Values::Time(of) => {
                let times = rows.iter().map(|row| of(row).map(microseconds));
                put_optional::<Int64Type>(&mut column, times)
            }
            Values::Number(of) => {
                let numbers = rows.iter().map(|row| of(row).map(signed));
                put_optional::<Int64Type>(&mut column, numbers)
            }
            Values::Text(of) => put_optional::<ByteArrayType>(&mut column, texts(rows, of)),
            Values::Fraction(of) => {
                let fractions: Vec<_> = rows.iter().map(of).collect();
                let column = column.typed::<DoubleType>();
                column.write_batch(&fractions, None, None).map(|_| ())
            }
        }?;
        column.close()?;
    }
    group.close()?;
    Ok(())
}

/// The texts of a column, in one piece of memory.
fn texts<R>(
    rows: &[R],
    of: impl Fn(&R, &mut String) -> bool,
) -> impl Iterator<Item = Option<ByteArray>> {
    let mut text = String::new();
    let ends: Vec<_> = rows
        .iter()
        .map(|row| (of(row, &mut text), text.len()))
        .collect();
    let all = ByteArray::from(text.into_bytes());
    let mut start = 0;
    ends.into_iter().map(move |(is_there, end)| {
        let from = std::mem::replace(&mut start, end);
        is_there.then(|| all.slice(from, end - from))
    })
}

/// Writes values of which some are absent.
fn put_optional<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let rows = values.size_hint().0;
    let (mut present, mut some) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    for value in values {
        present.push(i16::from(value.is_some()));
        some.extend(value);
    }
    column
        .typed::<T>()
        .write_batch(&some, Some(&present), None)?;
    Ok(())
}
