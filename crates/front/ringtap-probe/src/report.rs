// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports from Parquet files: one page of HTML with plots, and its numbers as CSV.
//!
//! Invariant: memory is bounded by the seconds of the flows and [`MAX_KEYS`] keys of each table.

mod page;
mod plots;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};

/// Most keys of each table; further ones are added to the key `other`.
const MAX_KEYS: usize = 200_000;
/// A flow's bytes are spread over at most so many seconds.
const LONGEST_S: i64 = 3600;

/// Sums over all flows of a folder.
#[derive(Debug, Default)]
pub struct FlowReport {
    /// Flow records read.
    pub flows: u64,
    total: TrafficSum,
    /// Second since 1970 → what began or passed in it.
    seconds: BTreeMap<i64, TrafficSum>,
    /// Flows by the power of two that their bytes reach.
    sizes: BTreeMap<u32, f64>,
    tables: [ReportTable; TABLES.len()],
}

/// Flows, packets and bytes; fractions, because a flow is spread over seconds.
#[derive(Clone, Copy, Debug, Default)]
struct TrafficSum {
    flows: f64,
    packets: f64,
    bytes: f64,
}

type ReportTable = HashMap<String, TrafficSum>;

/// Titles of the tables, and the key of a flow, which may have none.
const TABLES: [(&str, KeyOf); 8] = [
    ("Sources", |flow| flow.text("source")),
    ("Destinations", |flow| flow.text("destination")),
    ("Pairs", |flow| {
        Some(format!(
            "{} → {}",
            flow.text("source")?,
            flow.text("destination")?
        ))
    }),
    ("Services", |flow| {
        let protocol = match flow.number("protocol")? {
            1 | 58 => return Some("icmp".into()),
            6 => "tcp",
            17 => "udp",
            other => return Some(format!("protocol {other}")),
        };
        Some(format!("{protocol}/{}", flow.number("destination_port")?))
    }),
    ("Applications", |flow| flow.text("application")),
    ("Servers (TLS, HTTP)", |flow| flow.text("server_name")),
    ("DNS questions", |flow| flow.text("dns_query")),
    ("Ends of flows", |flow| flow.text("end_reason")),
];
type KeyOf = fn(&FlowRow) -> Option<String>;

/// Why a report cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The folder has no results.
    #[error("{0}: no *.parquet files: write them with `ringtap probe --export parquet:FOLDER`")]
    Empty(PathBuf),
    /// A file cannot be read or written.
    #[error("{path}: {reason}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// A file is not one of ours.
    #[error("{path}: {reason}")]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The library's reason.
        reason: ParquetError,
    },
    /// A plot cannot be drawn.
    #[error("a plot cannot be drawn: {0}")]
    Plot(String),
}

/// A row of a file, by names of columns.
struct FlowRow(HashMap<String, Field>);

impl FlowRow {
    fn number(&self, name: &str) -> Option<i64> {
        match self.0.get(name)? {
            Field::Long(value) | Field::TimestampMicros(value) => Some(*value),
            _ => None,
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Field::Str(value) => Some(value.clone()),
            _ => None,
        }
    }

    /// Sum of a number of both directions.
    fn both(&self, name: &str) -> f64 {
        let way = |way: &str| self.number(&format!("{way}_{name}")).unwrap_or(0);
        as_f64(way("forward").saturating_add(way("backward")))
    }
}

impl From<Row> for FlowRow {
    fn from(row: Row) -> Self {
        FlowRow(row.into_columns().into_iter().collect())
    }
}

impl FlowReport {
    /// Reads `FOLDER/flows/*.parquet`.
    ///
    /// # Errors
    ///
    /// There is no file, or one cannot be read.
    pub fn read(folder: &Path) -> Result<Self, ReportError> {
        let folder = folder.join("flows");
        let at = |path: &Path| {
            let path = path.to_owned();
            move |reason| ReportError::Io { path, reason }
        };
        let mut files = Vec::new();
        for entry in fs::read_dir(&folder).map_err(at(&folder))? {
            let path = entry.map_err(at(&folder))?.path();
            let hidden = path
                .file_name()
                .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && path.extension().is_some_and(|ext| ext == "parquet") {
                files.push(path);
            }
        }
        if files.is_empty() {
            return Err(ReportError::Empty(folder));
        }
        let mut report = FlowReport::default();
        for path in files {
            let file = File::open(&path).map_err(at(&path))?;
            report
                .add_file(file)
                .map_err(|reason| ReportError::Parquet { path, reason })?;
        }
        Ok(report)
    }

    fn add_file(&mut self, file: File) -> Result<(), ParquetError> {
        let reader = SerializedFileReader::new(file)?;
        for row in reader.get_row_iter(None)? {
            self.add(&row?.into());
        }
        Ok(())
    }

    fn add(&mut self, flow: &FlowRow) {
        let sum = TrafficSum {
            flows: 1.0,
            packets: flow.both("packets"),
            bytes: flow.both("bytes"),
        };
        self.flows += 1;
        self.total.add(sum, 1.0);
        *self.sizes.entry(power(sum.bytes)).or_default() += 1.0;
        let seconds = |name| flow.number(name).unwrap_or(0).div_euclid(1_000_000);
        let first = seconds("first_time");
        let last = seconds("last_time").clamp(first, first.saturating_add(LONGEST_S - 1));
        let share = 1.0 / as_f64(last - first + 1);
        for second in first..=last {
            self.seconds.entry(second).or_default().add(sum, share);
        }
        for ((_, key), table) in TABLES.iter().zip(&mut self.tables) {
            let Some(mut key) = key(flow) else { continue };
            if table.len() >= MAX_KEYS && !table.contains_key(&key) {
                key = "other".into();
            }
            table.entry(key).or_default().add(sum, 1.0);
        }
    }

    /// Writes the page, and beside it `NAME-rates.csv` and `NAME-tables.csv`; returns their paths.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn write(&self, page: &Path) -> Result<[PathBuf; 3], ReportError> {
        let beside = |what: &str| {
            let stem = page.file_stem().unwrap_or_default().to_string_lossy();
            page.with_file_name(format!("{stem}-{what}.csv"))
        };
        let written = [
            (page.to_owned(), self.html()?),
            (beside("rates"), self.rates_csv()),
            (beside("tables"), self.tables_csv()),
        ];
        for (path, text) in &written {
            fs::write(path, text).map_err(|reason| ReportError::Io {
                path: path.clone(),
                reason,
            })?;
        }
        Ok(written.map(|(path, _)| path))
    }

    /// The keys with most bytes of each table that has any.
    fn tops(&self, count: usize) -> impl Iterator<Item = (&'static str, Vec<(&str, TrafficSum)>)> {
        let tables = TABLES.iter().zip(&self.tables);
        tables
            .filter(|(_, table)| !table.is_empty())
            .map(move |((title, _), table)| {
                let mut rows: Vec<_> = table
                    .iter()
                    .map(|(key, sum)| (key.as_str(), *sum))
                    .collect();
                rows.sort_by(|a, b| b.1.bytes.total_cmp(&a.1.bytes).then(a.0.cmp(b.0)));
                rows.truncate(count);
                (*title, rows)
            })
    }
}

impl TrafficSum {
    fn add(&mut self, other: TrafficSum, share: f64) {
        self.flows += other.flows * share;
        self.packets += other.packets * share;
        self.bytes += other.bytes * share;
    }
}

/// The greatest power of two that is not above the number.
fn power(number: f64) -> u32 {
    (0..63)
        .rev()
        .find(|power| as_f64(1_i64 << power) <= number)
        .unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "a report shows three digits")]
fn as_f64(number: i64) -> f64 {
    number as f64
}
