// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record batches in files: `FOLDER/date=2026-11-27/hour=14/packets-….parquet`, by the hour of the packets in UTC.
//!
//! Invariants
//! - A file has its final name only when it is complete; before, its name begins with a dot.
//! - At most [`MOST_OPEN`] files are open, whatever times the packets have.

mod format;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{TimestampNanosecondType, UInt32Type};
use arrow_schema::{ArrowError, SchemaRef};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use parquet::errors::ParquetError;

pub use format::TableFormat;
use format::TableWriter;

/// Hours whose files are open at one time.
const MOST_OPEN: usize = 4;
const HOUR_NS: i64 = 3_600_000_000_000;

/// Files that this process has begun: part of their names.
static FILES: AtomicU64 = AtomicU64::new(0);

/// Why packets cannot be written to a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A folder or a file cannot be written.
    #[error("{}: {error}", path.display())]
    File {
        /// The folder or file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// The table cannot be encoded.
    #[error(transparent)]
    Table(#[from] ArrowError),
    /// The table cannot be encoded as Parquet.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
}

/// Writes record batches of [`PacketColumns`](crate::PacketColumns) to a series of files.
pub struct TableFiles {
    folder: PathBuf,
    format: TableFormat,
    schema: SchemaRef,
    rotate: Option<Duration>,
    /// The files of the last hours, the latest used last.
    open: Vec<HourFile>,
    files: u64,
    /// Rows of complete files, and bytes on the wire of their packets.
    written: (u64, u64),
}

/// A file that is not complete.
struct HourFile {
    hour: i64,
    writer: TableWriter,
    hidden: PathBuf,
    complete: PathBuf,
    begun: Instant,
    rows: u64,
    bytes: u64,
}

impl TableFiles {
    /// Writes below `folder`; begins new files after `rotate`, if given.
    ///
    /// # Errors
    ///
    /// [`TableError::File`]: the folder cannot be made.
    pub fn new(
        folder: &Path,
        format: TableFormat,
        schema: &SchemaRef,
        rotate: Option<Duration>,
    ) -> Result<Self, TableError> {
        fs::create_dir_all(folder).map_err(|error| at(folder, error))?;
        Ok(TableFiles {
            folder: folder.to_owned(),
            format,
            schema: format.schema(schema),
            rotate,
            open: Vec::new(),
            files: 0,
            written: (0, 0),
        })
    }

    /// Number of complete files.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.files
    }

    /// Number of packets in complete files, and their bytes on the wire.
    #[must_use]
    pub fn written(&self) -> (u64, u64) {
        self.written
    }

    /// Writes a record batch, each hour to its file.
    ///
    /// # Errors
    ///
    /// Every [`TableError`]; files that are open are given up when this value is dropped.
    pub fn write(&mut self, table: &RecordBatch) -> Result<(), TableError> {
        let times = table.column(0).as_primitive::<TimestampNanosecondType>();
        let hours = times.values().iter().map(|time| time.div_euclid(HOUR_NS));
        let hours: Vec<_> = hours.collect();
        let mut start = 0;
        for part in hours.chunk_by(|one, next| one == next) {
            let rows = table.slice(start, part.len());
            start += part.len();
            if let Some(hour) = part.first() {
                self.write_hour(*hour, &rows)?;
            }
        }
        Ok(())
    }

    fn write_hour(&mut self, hour: i64, table: &RecordBatch) -> Result<(), TableError> {
        let open = self.open.iter().position(|file| file.hour == hour);
        let mut file = match open {
            Some(open) => self.open.remove(open),
            None => self.begin(hour)?,
        };
        let lengths = table.column(1).as_primitive::<UInt32Type>().values();
        file.bytes += lengths.iter().map(|length| u64::from(*length)).sum::<u64>();
        file.rows += table.num_rows() as u64;
        let table = self.format.table(table, &self.schema)?;
        let written = file.writer.write(&table);
        self.open.push(file);
        written
    }

    fn begin(&mut self, hour: i64) -> Result<HourFile, TableError> {
        if self.open.len() == MOST_OPEN {
            let oldest = self.open.remove(0);
            self.close(oldest)?;
        }
        let start = Timestamp::from_second(hour.saturating_mul(3600)).unwrap_or(Timestamp::MIN);
        let start = start.to_zoned(TimeZone::UTC);
        let folder = self.folder.join(format!("date={}", start.date()));
        let folder = folder.join(format!("hour={:02}", start.time().hour()));
        fs::create_dir_all(&folder).map_err(|error| at(&folder, error))?;
        let number = FILES.fetch_add(1, Relaxed);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        // No two processes and no two runs of one write the same file.
        let name = format!(
            "packets-{}-{}-{number}.{}",
            now.as_secs(),
            std::process::id(),
            self.format.extension()
        );
        let hidden = folder.join(format!(".{name}"));
        // Readable by their user only, as capture files are.
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&hidden).map_err(|error| at(&hidden, error))?;
        Ok(HourFile {
            hour,
            writer: TableWriter::new(self.format, file, &self.schema)?,
            hidden,
            complete: folder.join(name),
            begun: Instant::now(),
            rows: 0,
            bytes: 0,
        })
    }

    fn close(&mut self, file: HourFile) -> Result<(), TableError> {
        let (rows, bytes) = (file.rows, file.bytes);
        let finished = file.writer.finish();
        let renamed = finished.and_then(|()| {
            fs::rename(&file.hidden, &file.complete).map_err(|error| at(&file.complete, error))
        });
        if renamed.is_err() {
            let _may_be_gone = fs::remove_file(&file.hidden);
        }
        renamed?;
        self.files += 1;
        self.written.0 += rows;
        self.written.1 += bytes;
        Ok(())
    }

    /// Completes files whose time is over.
    ///
    /// # Errors
    ///
    /// As for [`TableFiles::write`].
    pub fn tick(&mut self) -> Result<(), TableError> {
        let Some(rotate) = self.rotate else {
            return Ok(());
        };
        while let Some(over) = self
            .open
            .iter()
            .position(|file| file.begun.elapsed() >= rotate)
        {
            let file = self.open.remove(over);
            self.close(file)?;
        }
        Ok(())
    }

    /// Completes all files.
    ///
    /// # Errors
    ///
    /// As for [`TableFiles::write`]; the first one.
    pub fn finish(&mut self) -> Result<(), TableError> {
        let mut outcome = Ok(());
        for file in std::mem::take(&mut self.open) {
            outcome = outcome.and(self.close(file));
        }
        outcome
    }
}

impl Drop for TableFiles {
    /// Files that were not completed are given up.
    fn drop(&mut self) {
        for file in &self.open {
            let _may_be_gone = fs::remove_file(&file.hidden);
        }
    }
}

fn at(path: &Path, error: io::Error) -> TableError {
    TableError::File {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests;
